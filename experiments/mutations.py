"""The list of one-line mutations of the mathematics that `experiments.mutants` tries."""

from typing import NamedTuple


class Mutant(NamedTuple):
    """`old` → `new` in one file; `old` must occur there exactly once."""

    file: str
    old: str
    new: str
    tests: str  # the nearest: names of test files without "test_", with ::test_name where the file is slow

    @property
    def name(self) -> str:
        """The file and the change."""
        return f"{self.file}: {self.old} → {self.new or 'nothing'}"


def _of(file: str, tests: str, *changes: tuple[str, str]) -> list[Mutant]:
    return [Mutant(file, old, new, tests) for old, new in changes]


MUTANTS = (
    *_of(
        "mfauc_jax/objective/losses.py",
        "losses",
        ("return 0.5 * jnp.maximum(", "return jnp.maximum("),
        ("sigmoid(-self.beta * x)", "sigmoid(-x)"),
        ("jax.nn.softplus(-self.beta * x)", "jax.nn.softplus(-self.beta * x) / self.beta"),
    ),
    *_of(
        "mfauc_jax/objective/weightings.py",
        "losses",
        ("jnp.tanh(self.rho * x)", "jnp.tanh(x)"),
        ("jnp.log1p(self.c * x)", "jnp.log1p(x)"),
    ),
    *_of(
        "mfauc_jax/objective/weights.py",
        "weights",
        ("(1.0 - item_counts / num_users) ** tau_neg", "(item_counts / num_users) ** tau_neg"),
        ("** tau)[items] * confidence", "** tau)[items]"),
        ("host.floats(w / mean)", "host.floats(w)"),
    ),
    *_of(
        "mfauc_jax/objective/penalties.py",
        "weights",
        ("(1 + np.sqrt(n / m))", "(1 + np.sqrt(m / n))"),
        ("lifted**self.reg_user_power", "lifted"),
        ('constants["noise"] * (m / n) * item_scale', 'constants["noise"] * item_scale'),
    ),
    *_of(
        "mfauc_jax/objective/penalties.py",
        "noise",
        ("w**0.75 / N, h ** (-3 / 8)", "w / N, h ** (-3 / 8)"),
        ("w**0.75 / N, h ** (-3 / 8)", "w**0.75 / N, h ** (-3 / 4)"),
        ("1 + 6 * (1 - rho)", "1 + 3 * (1 - rho)"),
        ("np.where(usable, N**0.75, 0.0)", "np.where(usable, N, 0.0)"),
    ),
    *_of(
        "mfauc_jax/objective/penalties.py",
        "dense",
        ("else reg.item[items]", "else reg.item[: len(items)]"),
        ("p**self.popularity", "p**-self.popularity"),
        ("np.average(length, weights=p)", "np.average(length)"),
    ),
    *_of(
        "mfauc_jax/tuning.py",
        "tuning",
        ("search.add(_fit(train, judge, member.longer()", "search.add(_fit(train, judge, member"),
        ("metric > (1 - CLOSE) * top", "metric > 0"),
    ),
    *_of(
        "mfauc_jax/objective/equation.py",
        "objective",
        ("0.5 * ((reg.user * users)", "((reg.user * users)"),
        ("0.5 * g_neg @ squared_gap", "g_neg @ squared_gap"),
        ("own * objective.loss(s_pos - s)", "own * objective.loss(s - s_pos)"),
        (
            "return 2 * value(objective, factors, sample)",
            "return value(objective, factors, sample)",
        ),
    ),
    *_of(
        "mfauc_jax/objective/exact.py",
        "exact::test_exact_is_the_triple_loop",
        ("2 * (1 - s_pos) * W1", "(1 - s_pos) * W1"),
        ("reverse=True)[1:]", "reverse=True)[:-1]"),
        ("(second - row_sums(own_b * s**2))", "(second)"),
    ),
    *_of(
        "mfauc_jax/objective/dislikes.py",
        "dislikes::test_the_exact_value_is_the_loop_and_its_gradient_the_difference_quotient",
        (".astype(b.dtype) - 1) * own_b", ".astype(b.dtype)) * own_b"),
        ("return (factor - 1) * np.bincount", "return factor * np.bincount"),
    ),
    *_of(
        "mfauc_jax/objective/sampling.py",
        "dislikes::test_draws_are_unbiased",
        ("< disliked.coin[users][:, None]", ">= disliked.coin[users][:, None]"),
    ),
    *_of(
        "mfauc_jax/serving/item_newton.py",
        "fold_in_items::test_newton_finds_the_minimum_of_each_row",
        ("bowl = extra * g_neg * rest", "bowl = extra * g_neg"),
        ("sign[part] ** order", "1"),
    ),
    *_of(
        "mfauc_jax/objective/sampling.py",
        "stochastic::test_a_minibatch_iteration_moves_along_the_exact_gradient_on_average",
        ("scale = num_neg / max(num_neg - 1, 1)", "scale = 1.0"),
    ),
    *_of(
        "mfauc_jax/objective/sampling.py",
        "sampling::test_one_user_whose_only_negative_is_the_item_has_no_other_to_draw",
        ("weights.b[item] / weights.neg_mass[users]", "weights.b[item]"),
        ("weights, users) - own_mass", "weights, users)"),
    ),
    *_of(
        "mfauc_jax/objective/sampling.py",
        "step_oracle::test_the_mean_step_is_the_gradient_of_the_triple_loop",
        ("jnp.where(has_item, count / num_holders,", "jnp.where(has_item, count / num_users,"),
    ),
    *_of(
        "mfauc_jax/objective/lookups.py",
        "sampling::test_the_rth_negative_is_the_rth_item_not_in_the_row",
        ("t - start + 1 if row_table", "t - start if row_table"),
    ),
    *_of(
        "mfauc_jax/solvers/sequential.py",
        "step_oracle::test_an_iteration_of_algorithm_1_is_that_of_numpy",
        (
            "return (weight * risk + 0.5 * by_user[i] * (u @ u)) / m",
            "return weight * risk / m + 0.5 * by_user[i] * (u @ u) / n",
        ),
        (
            "self.item_risk(objective, v, factors, sample) + 0.5 * by_item[j] * (v @ v) / n",
            "0.3 * self.item_risk(objective, v, factors, sample) + 0.5 * by_item[j] * (v @ v) / m",
        ),
        ("U_new if self.new_user else U", "U"),
        ("gradient * 1000", "gradient * 100"),
        ("jnp.minimum(1.0, self.max_norm", "jnp.maximum(0.0, self.max_norm"),
        ("0 if solver.fixed_order else t", "t"),
    ),
    *_of(
        "mfauc_jax/solvers/sweeps.py",
        "alternating::test_the_gradient_is_zero_after_each_half_step",
        ("far = -far * local.inverse", "far = far * local.inverse"),
        ("ridge = local.reg / jnp.maximum(local.weight, 1e-30)", "ridge = local.reg"),
        ("per_item = data.num_usable / data.num_items", "per_item = 1.0"),
    ),
    *_of(
        "mfauc_jax/solvers/mesh.py",
        "mesh_items::test_a_sweep_is_that_of_one_device",
        ("return jax.lax.psum(sums, AXIS) if self.by_items else sums", "return sums"),
        ("return [own, *self.over(list(sums))]", "return [own, *sums]"),
    ),
    *_of(
        "mfauc_jax/solvers/range_finder.py",
        "mesh_items::test_a_whole_fit_is_that_of_one_device",
        ("_peak(devices.all_items(_peak(columns)))", "_peak(columns)"),
    ),
    *_of(
        "mfauc_jax/solvers/alternating.py",
        "mesh_items::test_a_state_goes_on_with_v_whole_or_split_on_another_number_of_devices",
        ("(state.factors.V)[: programs.item_rows(problem.X.num_items)]", "(state.factors.V)"),
    ),
    *_of(
        "mfauc_jax/solvers/dense.py",
        "mesh_dense::test_a_fit_is_the_same_on_any_number_of_devices",
        ("jnp.where(data.places[:, None] < 0, data.X.num_items, items)", "jnp.asarray(items)"),
    ),
    *_of(
        "mfauc_jax/solvers/dense.py",
        "dense::test_it_comes_near_the_minimum_of_full_batch",
        (
            "factors = scored_rows(objective.reg, factors)  # else",
            "factors = Factors(*factors)  # else",
        ),
    ),
    *_of(
        "mfauc_jax/solvers/least_squares.py",
        "least_squares::test_it_is_the_default_model_but_for_a_per_cent_of_noise",
        ("0.01 * size", "0.1 * size"),
        ("in range(solver.iterations)", "in range(1)"),
    ),
    *_of(
        "mfauc_jax/solvers/least_squares.py",
        "least_squares::test_no_row_and_no_direction_of_it_is_zero",
        ("0.01 * size", "0.0 * size"),
    ),
    *_of(
        "mfauc_jax/solvers/features.py",
        "with_features::test_the_gradient_that_a_sweep_uses_is_that_of_the_joint_objective",
        ("self.transposed(image)]) + reg", "self.transposed(image, 2)]) + reg"),
        (
            "reg = jnp.concatenate([by_row, self.reg * per_row])\n        return jnp.concatenate",
            "reg = jnp.concatenate([by_row, self.reg])\n        return jnp.concatenate",
        ),
    ),
    *_of(
        "mfauc_jax/objective/sides.py",
        "with_features::test_a_feature_has_the_ridge_of_its_items_and_the_own_parts_have_twice_theirs",
        ("matrix.multiply(matrix).T @ own", "matrix.T @ own"),
        ("by_feature, 1.0), SHARED * own)", "by_feature, 1.0), own)"),
    ),
    *_of(
        "mfauc_jax/solvers/sampled_features.py",
        "sampled_features::test_rows_of_features_and_their_slopes_are_those_of_the_dense_matrix",
        ("jnp.where(start + slot < end, ", "jnp.where(start + slot <= end, "),
        ("reg * self.placed.reg[:, None] * A", "reg * A"),
    ),
    *_of(
        "mfauc_jax/objective/sides.py",
        "sampled_features::test_units_of_the_optimiser_change_neither_rows_nor_penalty",
        ("reg=self.reg / unit**2", "reg=self.reg / unit"),
    ),
    *_of(
        "mfauc_jax/objective/sides.py",
        "later_features::test_new_users_with_features_are_solved_around_them",
        ("user=SHARED * np.asarray(reg.user)", "user=np.asarray(reg.user)"),
    ),
    *_of(
        "mfauc_jax/solvers/minibatch.py",
        "stochastic::test_a_minibatch_iteration_moves_along_the_exact_gradient_on_average",
        ("(by_item * per_draw)[items]", "by_item[items]"),
        ("num_neg * as_neg)", "num_pos * as_neg)"),
        ("jnp.concatenate(dv, 1) * item_scale", "jnp.concatenate(dv, 1)"),
    ),
    *_of(
        "mfauc_jax/solvers/blockwise/visits.py",
        "blockwise::test_the_mean_over_assignments_is_the_full_gradient",
        ("b[neg] * (d / facts.neg_mass)", "b[neg] * (1 / facts.neg_mass)"),
        ("(d * jnp.maximum(real.sum(), 1))", "jnp.maximum(real.sum(), 1)"),
    ),
    *_of(
        "mfauc_jax/solvers/blockwise/rounds.py",
        "blockwise::test_a_step_visits_the_blocks_that_assigned_says "
        "blockwise::test_each_home_block_sends_equal_random_parts_to_every_row_block",
        ("parts = design.REASSIGN[solver.reassign](d)", "parts = 1"),
    ),
    *_of(
        "mfauc_jax/solvers/blockwise/drawing.py",
        "blockwise::test_positives_are_sorted_by_block_then_user_then_place",
        ("place - ones)", "place)"),
    ),
    *_of(
        "mfauc_jax/solvers/blockwise/design.py",
        "blockwise::test_pairs_meet_as_often_as_the_design_says",
        ("(size - 1) / (size - blocks)", "size / (size - blocks)"),
    ),
    *_of(
        "mfauc_jax/solvers/averaging.py",
        "stochastic::test_averages_start_as_copies_and_then_are_means",
        ("(1.0 + rule.eta) / (elapsed", "1.0 / (elapsed"),
    ),
    *_of(
        "mfauc_jax/evaluation/formulas.py",
        "metrics::test_auc_is_scikit_learns metrics::test_metrics_at_a_length_are_ranxs",
        ("2 * counts.per_user", "counts.per_user"),
        ("[np.minimum(counts.num_pos, size) - 1]", "[-1]"),
        ("above + 0.5 * level", "above + level"),
    ),
    *_of(
        "mfauc_jax/evaluation/counts.py",
        "metrics::test_auc_is_scikit_learns",
        ("n - (num_seen + lengths)[users]", "n - num_seen[users]"),
        ("above=above - mates_above", "above=above"),
    ),
    *_of("experiments/fig_roc.py", "fig_roc", ('("printed", None)', '("printed", part.train)')),
    *_of(
        "mfauc_jax/serving/fold_in.py",
        "fold_in::test_fold_in_is_scipys_minimum_and_the_gap_covers_what_is_missed",
        ("share * reg[rows] / w[rows]", "share * reg[rows]"),
        (" - spread * np.outer(far, far)", ""),
    ),
    *_of(
        "mfauc_jax/certify/held_out.py",
        "certificate::test_ranks_equal_a_loop_with_ties",
        ("counts.num_pos) - 1", "counts.num_pos)"),
    ),
    *_of(
        "mfauc_jax/certify/bounds.py",
        "bounds",
        ("7 * log / (3 * (size - 1))", "log / (3 * (size - 1))"),
    ),
    *_of(
        "mfauc_jax/certify/bounds.py",
        "mcdiarmid",
        ("np.log(1 / delta) / 2 * squares.sum()", "np.log(1 / delta) / 4 * squares.sum()"),
    ),
    *_of(
        "mfauc_jax/certify/bounds.py",
        "generalisation",
        ("Constants(loss.beta / 4,", "Constants(loss.beta / 8,"),
    ),
    *_of(
        "mfauc_jax/certify/rademacher.py",
        "certificate::test_the_terms_of_a_rademacher_bound_are_its_formula",
        ("3 * w * signs.deviation", "w * signs.deviation"),
        (" / ((l_norm + 1) * (l_norm + 2)", " / ((l_norm + 1)"),
    ),
    *_of(
        "mfauc_jax/certify/pac_bayes.py",
        "pac_bayes",
        ("divergence + float((moved * noise).sum())", "divergence"),
        ("U / np.sqrt(len(U))", "U"),
        ("np.log(2 * np.sqrt(size) * num_sigmas / delta)", "np.log(2 * np.sqrt(size) / delta)"),
    ),
    *_of("theory/generalisation.py", "generalisation", ("rhat = 2 / m *", "rhat = 1.2 / m *")),
    *_of(
        "theory/rademacher.py",
        "rademacher",
        (
            "return 2 * lipschitz * rho * float(norms.mean())",
            "return lipschitz * rho * float(norms.mean())",
        ),
    ),
    *_of(
        "theory/verify_rademacher.py",
        "verify_bounds",
        (
            "return rademacher.corrected_bound(KEY, X, B, rho, draws=draws)",
            "return 0.5 * rademacher.corrected_bound(KEY, X, B, rho, draws=draws)",
        ),
    ),
    *_of(
        "theory/mcdiarmid.py",
        "mcdiarmid",
        ("np.sqrt(2 * np.log(1 / delta) * total)", "np.sqrt(np.log(1 / delta) * total)"),
    ),
    *_of("theory/closed_form.py", "closed_form", ('m if form.reg_rows == "m" else n', "n")),
    *_of(
        "theory/consistency.py",
        "consistency",
        ("np.where(x == 0, 0.5, 0.0)", "np.where(x == 0, 0.0, 0.0)"),
    ),
)
