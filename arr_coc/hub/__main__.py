"""Hub: publish weights, the Space and results, and check beforehand that it would work.

    python -m arr_coc.hub check
    python -m arr_coc.hub push-model ORG/WEIGHTS --weights FOLDER --results results/NAME --tag v1.0 --yes
    python -m arr_coc.hub push-space ORG/SPACE --hardware t4 --weights ORG/WEIGHTS --revisions v1.0 --yes
    python -m arr_coc.hub push-results ORG/RESULTS --yes
    python -m arr_coc.hub push-questions ORG/NAME --folder DIR --results results/NAME --licence NAME --yes
    python -m arr_coc.hub push-base ORG/BASE --yes

Without `--yes` nothing is sent and no network is used: the exact list of files and sizes is printed.
The token is the secret HF_TOKEN, or that of `hf auth login`. Which files go is decided in `files`, what
the cards say in `cards`, what is tried beforehand in `check`. The last stdout line is JSON.
"""

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, errors

from arr_coc.hub import files as hub_files
from arr_coc.hub.check import FAILED, Refused, account, check, check_header, sentence
from arr_coc.hub.files import FLAVOR, Files
from arr_coc.hub.settings import (
    WAIT_S,
    Check,
    Push,
    PushBase,
    PushModel,
    PushQuestions,
    PushResults,
    PushSpace,
    parse,
    separate,
)
from arr_coc.qwen import fetching, loading

POLL_S = 5.0
GRACE_S = 60.0  # how long a stage may still be that of the version before
RUNNING = "RUNNING"
KEPT_BY_THE_HUB = ".gitattributes"  # it says which files are large
VARIABLES = {"GRADIO_SSR_MODE": "false"}  # of every Space


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    settings = parse(argv, __doc__.splitlines()[0])
    try:
        report = RUN[type(settings)](settings)
    except (Refused, ValueError, OSError, loading.HTTP_ERROR) as error:
        sys.exit(f"hub: {sentence(error)}")
    print(json.dumps(report))
    if report.get("wrong"):
        sys.exit(1)


# ------------------------------------------------------------------------------------- pushing


def push_model(settings: PushModel) -> dict[str, Any]:
    """Publish weights, with a card made from results."""
    revision = settings.tag or "main"
    files = hub_files.model_files(
        settings.weights,
        settings.repo,
        settings.results,
        revision,
        base_id=settings.base_id,
        space=settings.space,
    )
    return push(settings, "model", files)


def push_results(settings: PushResults) -> dict[str, Any]:
    """Publish results as a data set; earlier ones there stay."""
    files = hub_files.results_files(settings.results, own_data=settings.own_data)
    return push(settings, "dataset", files, mirror=False)


def push_base(settings: PushBase) -> dict[str, Any]:
    """Publish a base that lies in a folder."""
    return push(settings, "model", hub_files.base_files(settings.base))


def push_questions(settings: PushQuestions) -> dict[str, Any]:
    """Publish a folder's questions with their pictures."""
    from arr_coc.hub.questions import question_files  # needs pyarrow, which a Space has not

    files = question_files(
        settings.folder,
        settings.results,
        settings.repo,
        settings.licence,
        skip_bad=settings.skip_bad,
    )
    return push(settings, "dataset", files)


def push(settings: Push, kind: str, files: Files, *, mirror: bool = True) -> dict[str, Any]:
    """Print the list; with `--yes` create the repo if need be, upload and tag.

    Args:
        settings: where to.
        kind: "model", "space" or "dataset".
        files: the list.
        mirror: whether what the repo holds beside the list is removed.

    Returns:
        What the last line says.
    """
    sizes = hub_files.sizes(files)
    print(f"{kind} {settings.repo}" + (f", version {settings.tag}" if settings.tag else ""))
    print(listing(sizes))
    if mirror:
        print("anything else in that repo is removed")
    report = {
        "repo": settings.repo,
        "type": kind,
        "files": len(sizes),
        "bytes": sum(sizes.values()),
        "tag": settings.tag,
        "pushed": settings.yes,
    }
    if not settings.yes:
        print("dry run: nothing was sent; --yes sends it")
        return report
    api = HfApi()
    print(f"as {account(api)}")
    check_tag(api, settings.repo, kind, settings.tag)
    if isinstance(settings, PushSpace):
        prepare_space(api, settings)
    else:
        private = settings.private or None
        api.create_repo(settings.repo, repo_type=kind, private=private, exist_ok=True)
    report["commit"] = upload(api, settings, kind, files, mirror=mirror)
    prefix = "" if kind == "model" else f"{kind}s/"
    return report | {"url": f"{api.endpoint}/{prefix}{settings.repo}"}


def listing(sizes: dict[str, int]) -> str:
    """The exact list, a line per file: bytes and path; then the sum."""
    lines = [f"{size:>12,}  {name}" for name, size in sizes.items()]
    return "\n".join([*lines, f"{sum(sizes.values()):>12,}  in {len(sizes)} files"])


def check_tag(api: HfApi, repo: str, kind: str, tag: str | None) -> None:
    """Raise Refused for a tag that the repo already has: versions are not moved."""
    if not tag:
        return
    try:
        refs = api.list_repo_refs(repo, repo_type=kind)
    except errors.RepositoryNotFoundError:
        return
    if tag in {ref.name for ref in refs.tags}:
        raise Refused(f"{repo} already has a version {tag}; versions are not moved, choose another")


def upload(api: HfApi, settings: Push, kind: str, files: Files, *, mirror: bool) -> str:
    """Upload a list in one commit, and tag it; returns the commit. `mirror` as in `push`.

    The client's `upload_folder` makes several of many files, and a Space would build each.
    """
    operations: list[CommitOperationAdd | CommitOperationDelete] = [
        CommitOperationAdd(name, source if isinstance(source, Path) else hub_files.bytes_of(source))
        for name, source in files.items()
    ]
    if mirror:
        there = api.list_repo_files(settings.repo, repo_type=kind)
        gone = [name for name in there if name not in files and name != KEPT_BY_THE_HUB]
        operations += [CommitOperationDelete(name) for name in gone]
    done = api.create_commit(
        settings.repo,
        operations,
        repo_type=kind,
        commit_message=settings.message or f"Publish {settings.tag or 'from the repository'}",
    )
    if settings.tag:
        api.create_tag(settings.repo, tag=settings.tag, revision=done.oid, repo_type=kind)
    return done.oid


# ----------------------------------------------------------------------------------- the Space


def push_space(settings: PushSpace) -> dict[str, Any]:
    """Publish the app, with torch pinned for its hardware; then variables, hardware, and waiting.

    Raises:
        Refused: for a base or weights that only this machine has.
    """
    check_header()
    for name, value in (("base", settings.base), ("weights", settings.weights)):
        if value and (Path(value).exists() or loading.looks_like_path(value)):
            raise Refused(f"--{name} {value} is a folder of this machine, expected a Hub id")
    hardware, flavor = settings.hardware, FLAVOR[settings.hardware]
    files = hub_files.space_files(hardware, own_data=settings.own_data, repo_id=settings.repo)
    print(f"hardware {flavor}, torch {hub_files.TORCH[hardware]}")
    for name, value in variables(settings).items():
        print(f"variable {name}={value}" if value else f"variable {name} removed")
    report = push(settings, "space", files) | {"hardware": flavor}
    if not settings.yes:
        return report
    api = HfApi()
    runtime = api.get_space_runtime(settings.repo)
    if (runtime.requested_hardware or runtime.hardware) != flavor:
        api.request_space_hardware(settings.repo, flavor)
    report["stage"] = "not waited for"
    if settings.wait:
        report["stage"] = wait_until_running(
            api, settings.repo, report["commit"], settings.timeout, hardware=flavor
        )
    return report


def variables(settings: PushSpace) -> dict[str, str]:
    """What the Space's environment is to hold; an empty one is to be removed."""
    given = {
        "ARR_COC_BASE": settings.base,
        fetching.REVISION: settings.base_revision,
        "ARR_COC_WEIGHTS": settings.weights,
        "ARR_COC_REVISIONS": settings.revisions,
    }
    return VARIABLES | {name: value for name, value in given.items() if value is not None}


def prepare_space(api: HfApi, settings: PushSpace) -> None:
    """Create the Space if need be, and set its variables before the build that reads them.

    Raises:
        Refused: where the base or the weights it is to load cannot be had.
    """
    for what, repo, revision in to_load(settings, held_by(api, settings.repo)):
        named = f"{what} {repo!r} at revision {revision or 'main'!r}"
        try:
            api.repo_info(repo, revision=revision)
        except errors.HfHubHTTPError as error:
            raise Refused(f"{named}: {sentence(error)}") from error
        if not is_open(api, repo, revision):
            print(
                f"{named} is read with a token alone: unless the Space has one as its secret HF_TOKEN "
                "(Settings, Variables and secrets), it will run without"
            )
    flavor = FLAVOR[settings.hardware]
    api.create_repo(
        settings.repo,
        repo_type="space",
        space_sdk="gradio",
        space_hardware=None if flavor == FLAVOR["cpu"] else flavor,
        private=settings.private or None,
        exist_ok=True,
    )
    present = api.get_space_variables(settings.repo)
    for name, value in variables(settings).items():
        if value and (name not in present or present[name].value != value):
            api.add_space_variable(settings.repo, name, value)
        elif not value and name in present:
            api.delete_space_variable(settings.repo, name)


def held_by(api: HfApi, space: str) -> dict[str, str]:
    """The variables of a Space; none where it is not there yet."""
    try:
        return {name: own.value for name, own in api.get_space_variables(space).items()}
    except errors.HfHubHTTPError:
        return {}


def to_load(settings: PushSpace, held: dict[str, str]) -> list[tuple[str, str, str | None]]:
    """What a Space is to load of what is given in part at least: a word, its repo, its revision."""
    found, after = [], held | variables(settings)
    if settings.base is not None or settings.base_revision is not None:
        found.append(("base", after.get("ARR_COC_BASE"), after.get(fetching.REVISION) or None))
    if settings.weights is not None or settings.revisions is not None:
        listed = separate(after.get("ARR_COC_REVISIONS"))
        found += [("weights", after.get("ARR_COC_WEIGHTS"), one) for one in listed]
    return [load for load in found if load[1]]


def is_open(api: HfApi, repo: str, revision: str | None) -> bool:
    """Whether anybody can read a model repo."""
    try:
        api.repo_info(repo, revision=revision, token=False)
    except errors.HfHubHTTPError:
        return False
    return True


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

    A stage counts where the Hub names the commit it belongs to, or once it has changed or stood for
    `GRACE_S`: right after an upload the Space still reports the version before.

    Args:
        api: of the Hub.
        repo: ORG/NAME of the Space.
        commit: that it is to run.
        timeout, poll: seconds to wait in all, and between two looks.
        clock: seconds that pass.
        hardware: a value of `files.FLAVOR`.

    Raises:
        Refused: where it fails, with the Hub's reason, or has not started in time.
    """
    started, first, last = clock(), None, None
    while True:
        runtime = api.get_space_runtime(repo)
        stage, running = str(getattr(runtime.stage, "value", runtime.stage)), runtime.raw.get("sha")
        first = first or stage
        if stage != last:
            print(f"{clock() - started:5.0f} s  {stage}", file=sys.stderr)
            last = stage
        changed = stage != first or clock() - started >= GRACE_S
        settled = running == commit if running else changed
        elsewhere = hardware not in (None, runtime.hardware)
        if settled and stage == RUNNING and not elsewhere:
            return stage
        if settled and stage in FAILED:
            reason = runtime.raw.get("errorMessage") or "see its logs"
            raise Refused(f"the Space stands at {stage}: {reason}")
        if clock() - started >= timeout:
            where = f"{stage} on {runtime.hardware}, not {hardware}," if elsewhere else stage
            raise Refused(f"the Space is still at {where} after {timeout:.0f} s; it may yet start")
        time.sleep(poll)


RUN: dict[type, Callable[[Any], dict[str, Any]]] = {
    PushModel: push_model,
    PushSpace: push_space,
    PushResults: push_results,
    PushBase: push_base,
    PushQuestions: push_questions,
    Check: check,
}


if __name__ == "__main__":
    main()
