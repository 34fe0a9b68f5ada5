"""Act in a simulator, and measure what a policy achieves."""

from kbrl.trials.evaluation import Evaluation as Evaluation
from kbrl.trials.evaluation import confidence_interval as confidence_interval
from kbrl.trials.rollouts import Simulator as Simulator
from kbrl.trials.rollouts import collect as collect
from kbrl.trials.rollouts import rollout as rollout
