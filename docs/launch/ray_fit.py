"""One fit by several Ray workers: `python ray_fit.py PROCESSES RATINGS MODEL [options of mfauc fit]`.

Both files are on a disk that all nodes share. Called again, a fit goes on from its last state.
"""

import os
import socket
import sys

import ray


@ray.remote(
    num_cpus=1, max_restarts=0
)  # num_cpus=32 for nodes of 32 cores, so that each has one worker
class Process:
    """One of the processes of a fit."""

    def address(self) -> str:
        """A free port of this worker's node, for process 0."""
        with socket.socket() as free:
            free.bind(("", 0))
            return f"{ray.util.get_node_ip_address()}:{free.getsockname()[1]}"

    def fit(self, coordinator: str, count: int, place: int, words: list[str]) -> int:
        """Take part in the fit; the exit code of `mfauc fit`."""
        os.environ["MFAUC_COORDINATOR"] = coordinator
        os.environ["MFAUC_NUM_PROCESSES"], os.environ["MFAUC_PROCESS_ID"] = str(count), str(place)
        from mfauc_jax import cli  # JAX starts here, and not before

        return cli.main(["fit", *words, "--distributed"])


def fit(processes: int, ratings: str, model: str, *options: str) -> None:
    """Fit `ratings` by several workers, and write the model; a RuntimeError if one of them fails."""
    words = [ratings, "--out", model, "--checkpoint_folder", f"{model}.states", *options]
    workers = [Process.remote() for _ in range(processes)]
    coordinator = ray.get(workers[0].address.remote())
    codes = ray.get(
        [
            worker.fit.remote(coordinator, processes, place, words)
            for place, worker in enumerate(workers)
        ]
    )
    if any(codes):
        raise RuntimeError(f"mfauc fit ended with exit codes {codes}: the workers' logs say why")


if __name__ == "__main__":
    ray.init()
    fit(int(sys.argv[1]), *sys.argv[2:])
