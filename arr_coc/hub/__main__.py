"""Hub: publish weights, the Space and results, and check beforehand that it would work.

    python -m arr_coc.hub check
    python -m arr_coc.hub push-model ORG/WEIGHTS --weights FOLDER --results results/NAME --tag v1.0 --yes
    python -m arr_coc.hub push-space ORG/SPACE --hardware t4 --weights ORG/WEIGHTS --revisions v1.0 --yes
    python -m arr_coc.hub push-results ORG/RESULTS --yes

Without `--yes` nothing is sent and no network is used: the exact list of files and sizes is printed.
The token is the secret HF_TOKEN, or that of `hf auth login`. Which files go is decided in
`files`, what the cards say in `cards`, what is tried beforehand in `check`. The last
stdout line is JSON.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, errors

from arr_coc.hub import cards
from arr_coc.hub import files as hub_files
from arr_coc.hub.check import FAILED, Refused, account, check, check_header, said
from arr_coc.hub.files import FLAVOR, ROOT, Files
from arr_coc.qwen import loading

WAIT_S, POLL_S = 1800.0, 5.0  # README's startup_duration_timeout is 30 minutes
GRACE_S = 60.0  # how long a stage may still be that of the version before
RUNNING = "RUNNING"
VARIABLES = {"base": "ARR_COC_BASE", "weights": "ARR_COC_WEIGHTS", "revisions": "ARR_COC_REVISIONS"}
SETTINGS = {"GRADIO_SSR_MODE": "false"}


# ------------------------------------------------------------------------------------- pushing


def listing(files: Files) -> str:
    """The exact list, a line per file: bytes and path; then the sum."""
    found = hub_files.sizes(files)
    lines = [f"{size:>12,}  {name}" for name, size in found.items()]
    return "\n".join([*lines, f"{sum(found.values()):>12,}  in {len(found)} files"])


def check_tag(api: HfApi, repo: str, kind: str, tag: str | None) -> None:
    """Versions are not moved: refuse a tag that the repo already has."""
    if not tag:
        return
    try:
        refs = api.list_repo_refs(repo, repo_type=kind)
    except errors.RepositoryNotFoundError:
        return
    if tag in {ref.name for ref in refs.tags}:
        raise Refused(f"{repo} already has a version {tag}; versions are not moved, choose another")


def upload(api: HfApi, args: argparse.Namespace, kind: str, files: Files, *, mirror: bool) -> str:
    """Upload a list in one commit, and tag it; returns the commit.

    With `mirror`, what the repo holds beside the list is removed.
    """
    with tempfile.TemporaryDirectory() as folder:
        hub_files.stage(files, Path(folder))
        done = api.upload_folder(
            repo_id=args.repo,
            repo_type=kind,
            folder_path=folder,
            commit_message=args.message or f"Publish {args.tag or 'from the repository'}",
            delete_patterns="*" if mirror else None,
        )
    if args.tag:
        api.create_tag(args.repo, tag=args.tag, revision=done.oid, repo_type=kind)
    return done.oid


def push(
    args: argparse.Namespace, kind: str, files: Files, *, mirror: bool = True
) -> dict[str, Any]:
    """Print the list; with `--yes` create the repo if need be, upload and tag."""
    found = hub_files.sizes(files)
    print(f"{kind} {args.repo}" + (f", version {args.tag}" if args.tag else ""))
    print(listing(files))
    if mirror:
        print("anything else in that repo is removed")
    report = {
        "repo": args.repo,
        "type": kind,
        "files": len(found),
        "bytes": sum(found.values()),
        "tag": args.tag,
        "pushed": args.yes,
    }
    if not args.yes:
        print("dry run: nothing was sent; --yes sends it")
        return report
    api = HfApi()
    print(f"as {account(api)}")
    check_tag(api, args.repo, kind, args.tag)
    if kind == "space":
        prepare_space(api, args)
    else:
        api.create_repo(args.repo, repo_type=kind, private=args.private or None, exist_ok=True)
    report["commit"] = upload(api, args, kind, files, mirror=mirror)
    prefix = "" if kind == "model" else f"{kind}s/"
    return report | {"url": f"{api.endpoint}/{prefix}{args.repo}"}


def push_model(args: argparse.Namespace) -> dict[str, Any]:
    """Weights, with a card made from results."""
    revision = args.tag or "main"
    files = hub_files.model_files(args.weights, args.repo, args.results, revision)
    return push(args, "model", files)


def push_results(args: argparse.Namespace) -> dict[str, Any]:
    """Results as a data set that the viewer and DuckDB open; earlier ones there stay."""
    return push(args, "dataset", hub_files.results_files(args.results), mirror=False)


# ----------------------------------------------------------------------------------- the Space


def variables(args: argparse.Namespace) -> dict[str, str]:
    """What the Space's environment is to hold; an empty one is to be removed."""
    given = {name: getattr(args, key) for key, name in VARIABLES.items()}
    return SETTINGS | {name: value for name, value in given.items() if value is not None}


def push_space(args: argparse.Namespace) -> dict[str, Any]:
    """The app, with torch pinned for its hardware; then variables, hardware, and waiting."""
    check_header()
    files = hub_files.space_files(args.hardware)
    print(f"hardware {FLAVOR[args.hardware]}, torch {hub_files.TORCH[args.hardware]}")
    for name, value in variables(args).items():
        print(f"variable {name}={value}" if value else f"variable {name} removed")
    report = push(args, "space", files) | {"hardware": FLAVOR[args.hardware]}
    if not args.yes:
        return report
    api = HfApi()
    runtime = api.get_space_runtime(args.repo)
    if (runtime.requested_hardware or runtime.hardware) != report["hardware"]:
        api.request_space_hardware(args.repo, report["hardware"])
    report["stage"] = "not waited for"
    if not args.no_wait:
        report["stage"] = wait_until_running(
            api, args.repo, report["commit"], args.timeout, hardware=report["hardware"]
        )
    return report


def prepare_space(api: HfApi, args: argparse.Namespace) -> None:
    """Create the Space if need be, and set its variables before the build that reads them.

    Raises:
        Refused: where the weights it is to load cannot be had.
    """
    if args.weights:
        for revision in (args.revisions or "").split(",") if args.revisions else [None]:
            try:
                api.repo_info(args.weights, revision=revision and revision.strip())
            except errors.HfHubHTTPError as error:
                raise Refused(
                    f"weights {args.weights!r} at revision {revision or 'main'!r}: {said(error)}"
                ) from error
    hardware = FLAVOR[args.hardware]
    api.create_repo(
        args.repo,
        repo_type="space",
        space_sdk="gradio",
        space_hardware=None if hardware == FLAVOR["cpu"] else hardware,
        private=args.private or None,
        exist_ok=True,
    )
    there = api.get_space_variables(args.repo)
    for name, value in variables(args).items():
        if value and (name not in there or there[name].value != value):
            api.add_space_variable(args.repo, name, value)
        elif not value and name in there:
            api.delete_space_variable(args.repo, name)


def wait_until_running(
    api: HfApi,
    repo: str,
    commit: str,
    timeout: float = WAIT_S,
    poll: float = POLL_S,
    clock: Callable[[], float] = time.monotonic,
    hardware: str | None = None,
) -> str:
    """Wait until the Space runs this commit, on this hardware if any is named; returns the stage.

    A stage counts where the Hub names the commit it belongs to, or once it has changed or stood for a
    minute: right after an upload the Space still reports the version before.

    Raises:
        Refused: where it fails, with the Hub's reason, or has not started in time.
    """
    begun, first, last = clock(), None, None
    while True:
        runtime = api.get_space_runtime(repo)
        stage, at = str(getattr(runtime.stage, "value", runtime.stage)), runtime.raw.get("sha")
        first = first or stage
        if stage != last:
            print(f"{clock() - begun:5.0f} s  {stage}", file=sys.stderr)
            last = stage
        settled = at == commit if at else stage != first or clock() - begun >= GRACE_S
        elsewhere = hardware not in (None, runtime.hardware)
        if settled and stage == RUNNING and not elsewhere:
            return stage
        if settled and stage in FAILED:
            reason = runtime.raw.get("errorMessage") or "see its logs"
            raise Refused(f"the Space stands at {stage}: {reason}")
        if clock() - begun >= timeout:
            where = f"{stage} on {runtime.hardware}, not {hardware}," if elsewhere else stage
            raise Refused(f"the Space is still at {where} after {timeout:.0f} s; it may yet start")
        time.sleep(poll)


# ---------------------------------------------------------------------------------- the command


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser(prog="python -m arr_coc.hub", description=__doc__.splitlines()[0])
    commands = p.add_subparsers(required=True, metavar="COMMAND")
    made = {}
    for name, run in {
        "push-model": push_model,
        "push-space": push_space,
        "push-results": push_results,
        "check": check,
    }.items():
        made[name] = one = commands.add_parser(name, help=run.__doc__.splitlines()[0])
        one.set_defaults(run=run)
        if name == "check":
            continue
        one.add_argument("repo", metavar="ORG/NAME", type=repo_id, help="where it goes")
        one.add_argument("--yes", action="store_true", help="do it; without it, a dry run")
        one.add_argument("--tag", help="name of this version, such as v1.0")
        one.add_argument("--message", help="of the commit")
        one.add_argument("--private", action="store_true", help="if the repo is created")
    made["push-model"].add_argument("--weights", type=Path, required=True, help="folder of weights")
    made["push-model"].add_argument("--results", type=Path, nargs="+", default=[],
                                    help="folders of evaluations, for the card")  # fmt: skip
    made["push-results"].add_argument("--results", type=Path, default=ROOT / hub_files.RESULTS)
    space = made["push-space"]
    space.add_argument("--hardware", choices=list(FLAVOR), required=True)
    space.add_argument("--no-wait", action="store_true", help="do not wait until it runs")
    space.add_argument("--timeout", type=float, default=WAIT_S, help="seconds to wait")
    for one in (space, made["check"]):
        one.add_argument("--base", help="Hub id or folder of a Qwen3-VL")
        one.add_argument(
            "--weights", help="Hub id of ARR-COC weights; '' removes them from a Space"
        )
        one.add_argument("--revisions", help="of the weights, separated by commas")
    made["check"].add_argument("--space", metavar="ORG/NAME", help="a Space to look at")
    return p


def repo_id(text: str) -> str:
    """ORG/NAME, or argparse's error."""
    if not cards.is_hub_id(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no ORG/NAME")
    return text


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    args = parser().parse_args(argv)
    try:
        report = args.run(args)
    except (Refused, ValueError, OSError, loading.HTTP_ERROR) as error:
        sys.exit(f"hub: {said(error)}")
    print(json.dumps(report))
    if report.get("wrong"):
        sys.exit(1)


if __name__ == "__main__":
    main()
