"""What every learner must be able to do: a battery of checks, for the library's learners and for yours.

``check_learner(learner)`` runs those that apply.  To see them one by one in pytest, parametrize over
``checks_for(learner)``.  Each check is a sentence that is true of a learner.
"""

from kbrl.testing.battery import Check as Check
from kbrl.testing.battery import check_learner as check_learner
from kbrl.testing.battery import checks_for as checks_for
