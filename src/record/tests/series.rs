//! Tests of repeated events.

use super::super::correlator::{Correlated, EventCorrelator, SERIES_END};
use super::*;

const MINUTE: Duration = Duration::from_secs(60);

/// Returns the name and the count of each patch.
fn patches(rig: &Rig) -> Vec<(String, u64)> {
    let patches = rig.sent().into_iter().filter(|sent| sent.method == Method::PATCH);
    patches.map(|sent| (sent.name, sent.body["series"]["count"].as_u64().unwrap())).collect()
}

/// client-go: `TestEventSeriesf`
#[tokio::test(start_paused = true)]
async fn repeats_become_a_series() {
    let mut rig = rig(&[]);
    for _ in 0..10 {
        warn(&rig.recorder, "refused");
        tokio::time::sleep(SECOND).await;
    }
    let sent = rig.sent();
    assert_eq!(sent.len(), 2, "{sent:?}");
    let name = sent[0].body["metadata"]["name"].as_str().unwrap();
    assert_eq!(patches(&rig), [(name.to_owned(), 2)]);
    let series = json!({"count": 2, "lastObservedTime": "2001-09-09T01:46:41.000000Z"});
    assert_eq!(sent[1].body, json!({"series": series}), "an update changes only the series");
    warn(&rig.recorder, "refused for another cause");
    tokio::time::sleep(SECOND).await;
    assert_eq!(rig.sent().len(), 3, "another note is another event");
    rig.stop().await;
    assert_eq!(patches(&rig).last(), Some(&(name.to_owned(), 10)), "shutdown writes the last count");
}

/// client-go: `TestFinishSeries`, `TestRefreshExistingEventSeries`
#[tokio::test(start_paused = true)]
async fn a_series_ends_with_its_last_count() {
    let mut rig = rig(&[]);
    for _ in 0..65 {
        warn(&rig.recorder, "refused");
        tokio::time::sleep(MINUTE).await;
    }
    let counts = |rig: &Rig| patches(rig).into_iter().map(|(_, count)| count).collect::<Vec<_>>();
    assert_eq!(counts(&rig), [2, 32, 62], "the series is written every half hour");
    tokio::time::sleep(3 * SERIES_END).await;
    assert_eq!(counts(&rig), [2, 32, 62, 65]);
    warn(&rig.recorder, "refused");
    tokio::time::sleep(SECOND).await;
    let sent = rig.sent();
    assert_eq!((sent.len(), &sent[5].method), (6, &Method::POST), "the next one is a new event");
    assert_eq!(patches(&rig).len(), 4);
    rig.stop().await;
    assert_eq!(rig.sent().len(), 6);
}

/// client-go: `TestEventSeriesWithEventSinkImplRace`
#[tokio::test(start_paused = true)]
async fn repeat_waits_for_the_write_of_the_first() {
    let mut rig = rig(&[0, 201]);
    for _ in 0..5 {
        warn(&rig.recorder, "refused");
    }
    tokio::time::sleep(RETRY / 2).await;
    assert_eq!(rig.sent().len(), 1, "the first is not written yet");
    tokio::time::sleep(RETRY).await;
    let methods: Vec<Method> = rig.sent().into_iter().map(|sent| sent.method).collect();
    assert_eq!(methods, [Method::POST, Method::POST, Method::PATCH]);
    assert_eq!(patches(&rig)[0].1, 5);
    rig.stop().await;
}

/// client-go: `TestUpdateExpiredEvent`
#[tokio::test(start_paused = true)]
async fn patch_of_expired_event_starts_new_series() {
    let mut rig = rig(&[201, 404]);
    for _ in 0..3 {
        warn(&rig.recorder, "refused");
        tokio::time::sleep(SECOND).await;
    }
    let methods: Vec<Method> = rig.sent().into_iter().map(|sent| sent.method).collect();
    assert_eq!(methods, [Method::POST, Method::PATCH, Method::POST, Method::PATCH]);
    let names: Vec<Value> = rig.sent().iter().map(|sent| sent.body["metadata"]["name"].clone()).collect();
    assert_eq!(patches(&rig)[1], (names[2].as_str().unwrap().to_owned(), 2));
    assert_eq!(rig.recorder.counts().failed, 0);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn refused_event_is_created_again_on_repeat() {
    let mut rig = rig(&[403]);
    for _ in 0..2 {
        warn(&rig.recorder, "refused");
        tokio::time::sleep(SECOND).await;
    }
    assert_eq!(rig.sent().iter().filter(|sent| sent.method == Method::POST).count(), 2);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn number_of_remembered_series_is_bounded() {
    for events in [1_000, 100_000] {
        let mut correlator = EventCorrelator::new();
        for at in 0..events {
            let event = Event {
                regarding: about(&at.to_string()),
                event_type: EventType::Normal,
                reason: "Synced",
                action: "Sync",
                note: "Foo synced successfully".to_owned(),
                time: Timestamp::UNIX_EPOCH,
            };
            let Correlated::Create(write) = correlator.correlate(&event) else { panic!("each event is new") };
            assert_eq!(correlator.written(&write), None);
            assert_eq!(correlator.next_over(false), None, "no event has repeats");
        }
        assert!(
            correlator.known().iter().all(|known| *known <= 4096.min(events)),
            "{:?}",
            correlator.known()
        );
        tokio::time::advance(300 * MINUTE).await;
        assert_eq!(correlator.next_over(false), None);
        assert_eq!(correlator.known(), [0, 0], "at rest nothing is remembered");
    }
}
