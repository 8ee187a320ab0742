// MathJax 3.2.2 (es5/tex-svg.js of the npm package mathjax@3, Apache-2.0, see LICENSE) is beside this file: no network.
window.MathJax = {
  tex: { inlineMath: [["\\(", "\\)"]], displayMath: [["\\[", "\\]"]] },
  options: { ignoreHtmlClass: ".*|", processHtmlClass: "arithmatex", enableMenu: false },
  svg: { fontCache: "local" },
};
