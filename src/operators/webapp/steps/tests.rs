use std::cell::RefCell;
use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;

const TASKS: [&str; 3] = ["a", "b", "c"];

static SPEC: LazyLock<WebAppSpec> = LazyLock::new(|| spec("1"));
static OTHER: LazyLock<WebAppSpec> = LazyLock::new(|| spec("2"));

fn spec(version: &str) -> WebAppSpec {
    WebAppSpec { version: version.to_owned(), replicas: 1, image: "nginx".to_owned() }
}

fn goal(generation: i64, direction: Direction) -> Goal<'static> {
    let subject = Subject { uid: "u", generation, spec: &SPEC };
    Goal { subject, direction, may_start: true, is_asked: false, now: Timestamp::UNIX_EPOCH }
}

fn goal_of(subject: Subject<'static>) -> Goal<'static> {
    Goal { subject, ..goal(1, Direction::Creation) }
}

fn nothing(_: &WebAppStep) -> Known {
    Known::Nothing
}

fn failed(_: &WebAppStep) -> Known {
    Known::Ended(Err(HookError::retry("no")))
}

fn goal_at(goal: Goal<'_>, second: i64) -> Goal<'_> {
    Goal { now: Timestamp::from_second(second).unwrap(), ..goal }
}

fn ended_well(_: &WebAppStep) -> Known {
    Known::Ended(Ok(()))
}

/// Advances to the end with every hook succeeding; returns the hooks that ran, as `a.create@2`.
fn run(steps: &mut [WebAppStep], goal: &Goal<'_>) -> Vec<String> {
    let log = RefCell::new(Vec::new());
    let mut is_run = false;
    for _ in 0..100 {
        let known = if is_run { Known::Ended(Ok(())) } else { Known::Nothing };
        is_run = false;
        match advance(steps, TASKS.len(), goal, |_| known.clone()) {
            Next::Finished => return log.into_inner(),
            Next::Run(at) => {
                let step = &steps[at];
                log.borrow_mut().push(format!("{}.{}@{}", step.name, step.hook.unwrap(), step.generation));
                is_run = true;
            }
            Next::Recorded(_) => {}
            other => panic!("{other:?}"),
        }
    }
    panic!("the steps do not end");
}

#[test]
fn hooks_run_in_order_each_recorded_first() {
    let mut steps = aligned(&[], &TASKS);
    let goal = goal(1, Direction::Creation);
    assert_eq!(advance(&mut steps, 3, &goal, nothing), Next::Recorded(0));
    assert_eq!(
        (steps[0].hook, steps[0].phase, steps[0].attempts),
        (Some(Hook::PreCreate), Phase::Running, 1)
    );
    assert_eq!(steps[0].operation_id, operation_id("u", "a", Hook::PreCreate, 1, &SPEC));
    let mut log = Vec::new();
    for task in TASKS {
        log.extend(Hook::CREATION.map(|hook| format!("{task}.{hook}@1")));
    }
    assert_eq!(run(&mut steps, &goal), log);
    assert!(steps.iter().all(|step| step.phase == Phase::Succeeded && step.finished_at.is_some()));
}

#[test]
fn a_finished_hook_is_not_run_again() {
    let mut steps = aligned(&[], &TASKS);
    let goal = goal(1, Direction::Creation);
    run(&mut steps, &goal);
    let before = steps.clone();
    assert_eq!(run(&mut steps, &goal), Vec::<String>::new());
    assert_eq!(steps, before);
}

/// As after the restore of a backup with its status: the generation is the same by chance, and says nothing.
#[test]
fn steps_of_another_uid_run_again() {
    let of_new = goal(1, Direction::Creation);
    let other = goal_of(Subject { uid: "other", ..of_new.subject });
    let mut fresh = aligned(&[], &TASKS);
    let all = run(&mut fresh, &of_new);
    let mut finished = aligned(&[], &TASKS);
    run(&mut finished, &other);
    let mut given_up = aligned(&[], &TASKS);
    advance(&mut given_up, 3, &other, nothing);
    let error = HookError::permanent("no");
    assert_eq!(advance(&mut given_up, 3, &other, |_| Known::Ended(Err(error.clone()))), Next::GivenUp(0));
    // The failure's backoff is kept, so that a client that spoils records causes no loop.
    let later = goal_at(of_new, 1000);
    for mut restored in [finished, given_up] {
        assert_eq!(run(&mut restored, &later), all);
        let ids = |steps: &[WebAppStep]| -> Vec<String> {
            steps.iter().map(|step| step.operation_id.clone()).collect()
        };
        assert_eq!(ids(&restored), ids(&fresh));
    }
    // A deletion undoes what they record, as operations of this uid.
    let mut restored = aligned(&[], &TASKS);
    run(&mut restored, &other);
    run(&mut restored, &goal(1, Direction::Deletion));
    assert!(restored.iter().all(|step| step.phase == Phase::Undone && is_of(step, "u")));
}

/// After a restore of the store the generation counts from an earlier one, and comes again with another spec.
#[test]
fn other_spec_of_the_same_generation_runs_again() {
    let first = goal(1, Direction::Creation);
    let second = goal_of(Subject { spec: &OTHER, ..first.subject });
    let ids = |steps: &[WebAppStep]| -> Vec<String> {
        steps.iter().map(|step| step.operation_id.clone()).collect()
    };
    let mut finished = aligned(&[], &TASKS);
    let all = run(&mut finished, &first);
    let before = ids(&finished);
    assert_eq!(run(&mut finished, &second), all);
    assert!(ids(&finished).iter().all(|id| !before.contains(id)));

    let mut running = aligned(&[], &TASKS);
    advance(&mut running, 3, &first, nothing);
    assert!(is_superseded(&running[0], &second));
    assert_eq!(advance(&mut running, 3, &second, |_| Known::Running), Next::Wait(0, None));
    assert_eq!(advance(&mut running, 3, &second, ended_well), Next::Recorded(0));
    assert_eq!((running[0].hook, running[0].attempts), (Some(Hook::PreCreate), 1));
}

/// A process of the first version has recorded IDs that do not depend on the spec.
#[test]
fn ids_of_the_first_version_are_kept() {
    let goal = goal(1, Direction::Creation);
    let first = |step: &mut WebAppStep| {
        step.operation_id = call::without_spec("u", &step.name, step.hook.unwrap(), step.generation);
        step.operation_id.clone()
    };
    let mut finished = aligned(&[], &TASKS);
    run(&mut finished, &goal);
    finished.iter_mut().for_each(|step| drop(first(step)));
    assert_eq!(run(&mut finished, &goal), Vec::<String>::new());

    let mut running = aligned(&[], &TASKS);
    advance(&mut running, 3, &goal, nothing);
    let id = first(&mut running[0]);
    assert_eq!(advance(&mut running, 3, &goal, nothing), Next::Run(0));
    assert_eq!(advance(&mut running, 3, &goal, failed), Next::Retry(0, Duration::from_secs(2)));
    assert_eq!(advance(&mut running, 3, &goal_at(goal, 9), nothing), Next::Recorded(0));
    assert_eq!((&running[0].operation_id, running[0].attempts), (&id, 2));
}

#[test]
fn recorded_hook_is_rerun_under_the_same_id() {
    let mut steps = aligned(&[], &TASKS);
    let goal = goal(1, Direction::Creation);
    advance(&mut steps, 3, &goal, nothing);
    let id = steps[0].operation_id.clone();
    // The process dies, and the next one finds the record.
    for _ in 0..2 {
        assert_eq!(advance(&mut steps, 3, &goal, nothing), Next::Run(0));
    }
    assert_eq!((&steps[0].operation_id, steps[0].attempts), (&id, 1));
}

#[test]
fn new_generation_waits_for_the_running_hook() {
    let mut steps = aligned(&[], &TASKS);
    advance(&mut steps, 3, &goal(1, Direction::Creation), nothing);
    let newer = goal(2, Direction::Creation);
    assert_eq!(advance(&mut steps, 3, &newer, |_| Known::Running), Next::Wait(0, None));
    // Another process has started the hook, which may still run until its timeout.
    let second = Duration::from_secs(1);
    assert_eq!(advance(&mut steps, 3, &newer, |_| Known::Elsewhere(second)), Next::Wait(0, Some(second)));
    assert_eq!(steps[0].generation, 1);
    let mut ended = steps.clone();
    assert_eq!(advance(&mut ended, 3, &newer, ended_well), Next::Recorded(0));
    assert_eq!((ended[0].generation, ended[0].hook), (2, Some(Hook::PreCreate)), "all tasks run again");
    assert_ne!(ended[0].operation_id, steps[0].operation_id);
    assert_eq!(advance(&mut steps, 3, &newer, |_| Known::Elsewhere(Duration::ZERO)), Next::Recorded(0));
    let log = run(&mut steps, &newer);
    assert_eq!((log.len(), log[0].as_str()), (9, "a.pre_create@2"));
}

#[test]
fn failed_hook_is_retried_under_the_same_id() {
    let mut steps = aligned(&[], &TASKS);
    let goal = goal(1, Direction::Creation);
    advance(&mut steps, 3, &goal, nothing);
    let id = steps[0].operation_id.clone();
    let delay = Duration::from_secs(2);
    assert_eq!(advance(&mut steps, 3, &goal, failed), Next::Retry(0, delay));
    assert_eq!((steps[0].phase, steps[0].message.as_str()), (Phase::Failed, "no"));
    assert_eq!(advance(&mut steps, 3, &goal_at(goal, 2), nothing), Next::Recorded(0));
    assert_eq!((steps[0].attempts, &steps[0].operation_id, steps[0].phase), (2, &id, Phase::Running));
    let delays = [1, 2, 3, 8, 9, i32::MAX].map(|attempts| backoff(attempts).as_secs());
    assert_eq!(delays, [1, 2, 4, 120, 120, 120]);
}

#[test]
fn backoff_follows_the_recorded_times() {
    let goal = goal(1, Direction::Creation);
    let asked = Goal { is_asked: true, ..goal };
    let after = |seconds| HookError::Retry { message: "no".to_owned(), after: seconds };
    let millis = Duration::from_millis;
    // Retry-After; the wait that is left after half a second, without and with a user who asks; when both have passed.
    for (asked_for, left, left_if_asked, over) in [
        (None, millis(1500), Duration::ZERO, 2),
        (Some(millis(200)), millis(1500), millis(500), 2),
        (Some(millis(90_500)), millis(90_500), millis(90_500), 91),
    ] {
        let mut steps = aligned(&[], &TASKS);
        advance(&mut steps, 3, &goal, nothing);
        advance(&mut steps, 3, &goal, |_| Known::Ended(Err(after(asked_for))));
        let half = Timestamp::from_millisecond(500).unwrap();
        let look = |goal: &Goal<'_>| advance(&mut steps.clone(), 3, goal, nothing);
        assert_eq!(look(&Goal { now: half, ..goal }), Next::Retry(0, left), "{asked_for:?}");
        let expected = match left_if_asked {
            Duration::ZERO => Next::Recorded(0),
            left => Next::Retry(0, left),
        };
        assert_eq!(look(&Goal { now: half, ..asked }), expected, "{asked_for:?}");
        assert_eq!(look(&goal_at(goal, over)), Next::Recorded(0), "{asked_for:?}");
        // Recorded by a clock that was ahead, or has been set back since: no wait.
        assert_eq!(look(&goal_at(goal, -1000)), Next::Recorded(0), "{asked_for:?}");
    }
    // Retry-After is capped at ten minutes.
    let mut steps = aligned(&[], &TASKS);
    advance(&mut steps, 3, &goal, nothing);
    advance(&mut steps, 3, &goal, |_| Known::Ended(Err(after(Some(millis(3_600_000))))));
    assert_eq!(advance(&mut steps, 3, &goal, nothing), Next::Retry(0, millis(600_000)));
}

#[test]
fn new_spec_and_deletion_honour_retry_after() {
    let (goal_now, minute) = (goal(1, Direction::Creation), Duration::from_secs(60));
    let later = |_: &WebAppStep| {
        Known::Ended(Err(HookError::Retry { message: "429".to_owned(), after: Some(minute) }))
    };
    for newer in [goal(2, Direction::Creation), goal(2, Direction::Deletion)] {
        let mut steps = aligned(&[], &TASKS);
        advance(&mut steps, 3, &goal_now, nothing);
        // The answer comes after the new spec, and before.
        let mut overtaken = steps.clone();
        assert_eq!(advance(&mut overtaken, 3, &newer, later), Next::Throttled(0, minute));
        advance(&mut steps, 3, &goal_now, later);
        assert_eq!(advance(&mut steps, 3, &newer, nothing), Next::Throttled(0, minute));
        assert_eq!(advance(&mut steps, 3, &goal_at(newer, 60), nothing), Next::Recorded(0));
        assert_eq!((steps[0].generation, steps[0].attempts), (2, 1));
    }
}

#[test]
fn unfinished_hook_yields_to_spec_change_and_deletion() {
    let not_yet = |_: &WebAppStep| Known::Ended(Err(HookError::not_yet("not yet", None)));
    let waiting = |_: &WebAppStep| Known::Waiting("not yet".to_owned(), Duration::from_secs(9));
    for newer in [goal(2, Direction::Creation), goal(2, Direction::Deletion)] {
        let mut steps = aligned(&[], &TASKS);
        let goal_now = goal(1, Direction::Creation);
        advance(&mut steps, 3, &goal_now, nothing);
        assert_eq!(advance(&mut steps, 3, &goal_now, not_yet), Next::Wait(0, None));
        assert_eq!(advance(&mut steps, 3, &goal_now, waiting), Next::Wait(0, Some(Duration::from_secs(9))));
        assert_eq!(advance(&mut steps, 3, &newer, waiting), Next::Recorded(0));
        assert_eq!(steps[0].generation, 2);
    }
}

#[test]
fn record_of_another_operation_is_retried() {
    let goal_now = goal(1, Direction::Creation);
    let wrong_id = |step: &mut WebAppStep| step.operation_id = "another's".to_owned();
    let no_hook = |step: &mut WebAppStep| step.hook = None;
    for (spoil, attempts) in [(&wrong_id as &dyn Fn(&mut WebAppStep), 2), (&no_hook, 1)] {
        let mut steps = aligned(&[], &TASKS);
        advance(&mut steps, 3, &goal_now, nothing);
        let id = steps[0].operation_id.clone();
        spoil(&mut steps[0]);
        let look = |steps: &mut [WebAppStep], second| {
            advance(steps, 3, &goal_at(goal_now, second), |_| panic!("a foreign record is not looked up"))
        };
        let first = look(&mut steps, 0);
        assert_eq!(first == Next::Recorded(0), attempts == 1, "a retry has a backoff: {first:?}");
        if attempts == 2 {
            assert_eq!(look(&mut steps, 2), Next::Recorded(0));
        }
        assert_eq!((&steps[0].operation_id, steps[0].attempts), (&id, attempts));
    }
}

#[test]
fn permanent_failure_waits_for_a_user() {
    let mut steps = aligned(&[], &TASKS);
    let goal_now = goal(1, Direction::Creation);
    advance(&mut steps, 3, &goal_now, nothing);
    let for_good = |_: &WebAppStep| Known::Ended(Err(HookError::permanent("never")));
    assert_eq!(advance(&mut steps, 3, &goal_now, for_good), Next::GivenUp(0));
    assert!(steps[0].permanent);
    assert_eq!(advance(&mut steps, 3, &goal_now, nothing), Next::GivenUp(0));
    let asked = Goal { is_asked: true, ..goal_now };
    let mut again = steps.clone();
    assert_eq!(advance(&mut again, 3, &asked, nothing), Next::Recorded(0), "the user asks for a retry");
    assert_eq!((again[0].attempts, again[0].permanent), (2, false));
    let mut newer = steps.clone();
    assert_eq!(advance(&mut newer, 3, &goal(2, Direction::Creation), nothing), Next::Recorded(0));
    assert_eq!(newer[0].attempts, 1);
}

#[test]
fn permanently_failed_undo_is_retried_every_two_minutes() {
    let mut steps = aligned(&[], &TASKS);
    advance(&mut steps, 3, &goal(1, Direction::Creation), nothing);
    let deletion = goal(2, Direction::Deletion);
    advance(&mut steps, 3, &deletion, ended_well);
    let for_good = |_: &WebAppStep| Known::Ended(Err(HookError::permanent("never")));
    assert_eq!(advance(&mut steps, 3, &deletion, for_good), Next::Retry(0, Duration::from_secs(121)));
    let second = Duration::from_secs(1);
    assert_eq!(advance(&mut steps, 3, &goal_at(deletion, 120), nothing), Next::Retry(0, second));
    assert_eq!(advance(&mut steps, 3, &goal_at(deletion, 121), nothing), Next::Recorded(0));
}

#[test]
fn pause_starts_no_hook_but_records_results() {
    let mut steps = aligned(&[], &TASKS);
    let goal_now = goal(1, Direction::Creation);
    let paused = Goal { may_start: false, ..goal_now };
    assert_eq!(advance(&mut steps, 3, &paused, nothing), Next::Held(0));
    assert_eq!(steps[0].phase, Phase::Pending);
    advance(&mut steps, 3, &goal_now, nothing);
    assert_eq!(advance(&mut steps, 3, &paused, ended_well), Next::Held(0));
    assert!(steps[0].finished_at.is_some());
}

#[test]
fn deletion_undoes_started_tasks_in_reverse() {
    let mut steps = aligned(&[], &TASKS);
    let created = goal(1, Direction::Creation);
    // Up to the first hook of the second task, which fails.
    while steps[1].hook.is_none() {
        advance(&mut steps, 3, &created, ended_well);
    }
    let deletion = goal(2, Direction::Deletion);
    assert_eq!(advance(&mut steps, 3, &deletion, |_| Known::Running), Next::Wait(1, None));
    advance(&mut steps, 3, &deletion, |_| Known::Ended(Err(HookError::retry("no"))));
    let mut log = Vec::new();
    for task in ["b", "a"] {
        log.extend(Hook::DELETION.map(|hook| format!("{task}.{hook}@2")));
    }
    assert_eq!(run(&mut steps, &deletion), log);
    assert_eq!(
        steps.iter().map(|step| step.phase).collect::<Vec<_>>(),
        [Phase::Undone, Phase::Undone, Phase::Pending]
    );
    assert_eq!(run(&mut aligned(&[], &TASKS), &deletion), Vec::<String>::new(), "nothing was started");
}

#[test]
fn removed_task_keeps_its_step_and_blocks_deletion() {
    let mut steps = aligned(&[], &TASKS);
    run(&mut steps, &goal(1, Direction::Creation));
    let mut fewer = aligned(&steps, &["c", "a"]);
    let names: Vec<&str> = fewer.iter().map(|step| step.name.as_str()).collect();
    assert_eq!(names, ["c", "a", "b"]);
    assert_eq!(advance(&mut fewer, 2, &goal(1, Direction::Creation), nothing), Next::Finished);
    assert_eq!(advance(&mut fewer, 2, &goal(2, Direction::Deletion), nothing), Next::Unknown(2));
}

/// Without leader election, and while a rollout brings another list of tasks.
#[test]
fn processes_with_different_tasks_do_not_fight() {
    let goal = goal(1, Direction::Creation);
    let lists: [&[&str]; 2] = [&["a", "b"], &["c", "b"]];
    let mut stored = Vec::new();
    let mut quiet = 0;
    for turn in 0..100 {
        let tasks = lists[turn % 2];
        let mut steps = aligned(&stored, tasks);
        // Each process has run what it finds recorded for one of its tasks.
        advance(&mut steps, tasks.len(), &goal, ended_well);
        let steps = in_order_to_store(steps, tasks.len(), &stored);
        quiet = if steps == stored { quiet + 1 } else { 0 };
        stored = steps;
    }
    assert!(quiet > 50, "the last write was {quiet} turns ago");
    let names: Vec<&str> = stored.iter().map(|step| step.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert!(stored.iter().all(|step| step.phase == Phase::Succeeded && step.attempts == 1), "{stored:#?}");
}

fn any_step(name: &'static str) -> impl Strategy<Value = WebAppStep> {
    let hooks = [
        None,
        Some(Hook::PreCreate),
        Some(Hook::Create),
        Some(Hook::PostCreate),
        Some(Hook::PreDelete),
        Some(Hook::Delete),
        Some(Hook::PostDelete),
    ];
    let phases =
        [Phase::Pending, Phase::Running, Phase::Succeeded, Phase::Failed, Phase::Undoing, Phase::Undone];
    (0..hooks.len(), 0..phases.len(), 0..3_i64, any::<bool>()).prop_map(
        move |(hook, phase, generation, is_over)| WebAppStep {
            name: name.to_owned(),
            hook: hooks[hook],
            operation_id: hooks[hook]
                .map(|hook| operation_id("u", name, hook, generation, &SPEC))
                .unwrap_or_default(),
            phase: phases[phase],
            generation,
            finished_at: is_over.then_some(Time(Timestamp::UNIX_EPOCH)),
            ..WebAppStep::default()
        },
    )
}

proptest! {
    /// Whatever is recorded, even by a process that works differently: if every hook succeeds, the goal is reached.
    #[test]
    fn any_recorded_state_reaches_the_goal(
        a in any_step("a"), b in any_step("b"), c in any_step("c"), is_deletion in any::<bool>(),
    ) {
        let mut steps = vec![a, b, c];
        let started: Vec<bool> = steps.iter().map(|step| step.hook.is_some()).collect();
        let direction = if is_deletion { Direction::Deletion } else { Direction::Creation };
        // Late enough for every backoff to have passed.
        let goal = goal_at(goal(2, direction), 1000);
        for _ in 0..200 {
            if advance(&mut steps, 3, &goal, ended_well) == Next::Finished {
                break;
            }
        }
        for (step, started) in steps.iter().zip(started) {
            if !is_deletion {
                prop_assert_eq!((step.phase, step.generation), (Phase::Succeeded, 2));
            } else if started {
                prop_assert_eq!(step.phase, Phase::Undone);
            }
        }
    }
}
