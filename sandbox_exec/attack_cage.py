"""Who may be attacked how: foreign attacks never run on the live machine.

From NAMESPACES on, the level under attack keeps a script away from the machine. Below
it (and with the naive runner) nothing but the attack's own restraint does: the
project's attacks are known for theirs, others run in a cage or not at all.
"""

from pathlib import Path

from .attack_corpus import OWN_CORPUS, Attack
from .bwrap import find_bwrap
from .errors import SandboxError
from .isolation import probe_isolation
from .limits import Level


def is_bare(level: str) -> bool:
    """Whether scripts at this level share the machine's processes."""
    return level == "naive" or Level.parse(level) < Level.NAMESPACES


def check_foreign(corpus: Path, level: str, *, really: bool) -> bool:
    """Return whether every attack of the corpus has to be caged.

    Args:
        corpus: folder of attacks.json. level: to be attacked.
        really: the caller knows that it is not the project's own.

    Raises:
        SandboxError: not asked for by `really`, or no cage holds here.
    """
    if not is_bare(level) or corpus.resolve() == OWN_CORPUS.resolve():
        return False
    if not really:
        raise SandboxError(
            f"refuses {corpus}: these are not the project's own attacks, and nothing "
            f"keeps a script at level {level.lower()} away from this machine; with "
            "--really they run in a cage (own processes, no network, everything but "
            "their own folder read-only)"
        )
    # The cage is made of what the level NAMESPACES is made of: it must hold.
    probe_isolation().choose(Level.POSIX, Level.NAMESPACES)
    return True


def cage(attack: Attack, level: str, stage: Path, *, foreign: bool) -> list[str]:
    """Return the start of the victim's command line; empty without a cage.

    Args:
        attack: may need a pid namespace, since it aims at every process.
        level: to be attacked.
        stage: the one folder that stays writable in a foreign attack's cage.
        foreign: the attack is not the project's.
    """
    if foreign:
        # Not even root inside may undo this: no capability, and a namespace whose
        # read-only mounts are locked. Writable /proc/sys would go by the user's id.
        args = ["--unshare-user", "--cap-drop", "ALL", "--unshare-net"]
        args += ["--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
        args += ["--ro-bind", "/", "/", "--dev", "/dev", "--tmpfs", "/dev/shm"]
        args += ["--bind", str(stage), str(stage)]
        args += ["--proc", "/proc", "--remount-ro", "/proc"]
    elif is_bare(level) and "pid_namespace" in attack.get("needs", ()):
        # Aimed at every process, or at process 1: never outside a namespace of its own.
        args = ["--dev-bind", "/", "/", "--proc", "/proc"]
    else:
        return []
    return [find_bwrap(), "--unshare-pid", *args, "--die-with-parent", "--"]
