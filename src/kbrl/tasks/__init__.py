"""Tasks that policies act in.  Importing this registers the tasks with Gymnasium, where that is installed."""

from kbrl.tasks.epilepsy import Epilepsy as Epilepsy
from kbrl.tasks.epilepsy import FixedFrequency as FixedFrequency
from kbrl.tasks.from_gymnasium import from_gymnasium as from_gymnasium
from kbrl.tasks.helicopter import Helicopter as Helicopter
from kbrl.tasks.hiv import HIV as HIV
from kbrl.tasks.pole_balancing import PoleBalancing as PoleBalancing
from kbrl.tasks.puddle_world import PuddleWorld as PuddleWorld
from kbrl.tasks.task import Task as Task

TASKS: dict[str, type[Task]] = {task.name: task for task in (PuddleWorld, PoleBalancing, HIV, Epilepsy, Helicopter)}


def _register() -> None:
    try:
        import gymnasium
    except ImportError:
        return
    for name in TASKS:
        if f"kbrl/{name}-v0" not in gymnasium.registry:
            gymnasium.register(f"kbrl/{name}-v0", "kbrl.tasks.gymnasium_env:make", kwargs={"task": name})


_register()
