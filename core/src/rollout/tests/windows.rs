//! Windows at both changes of summer time, freezes, and windows over midnight.

use jiff::civil::{Date, Time};
use proptest::prelude::*;

use super::*;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn zurich(days: &[Day], start: &str, length_min: u32) -> MaintenanceWindow {
    MaintenanceWindow {
        time_zone: "Europe/Zurich".to_owned(),
        weekly: vec![Weekly {
            days: days.to_vec(),
            start: start.parse().unwrap(),
            length_min,
        }],
        freezes: Vec::new(),
    }
}

fn open(until: &str) -> Opening {
    Opening::Open {
        until: Some(at(until)),
    }
}

fn closed(opens: &str) -> Opening {
    Opening::Closed {
        opens: Some(at(opens)),
    }
}

#[test]
fn a_window_begins_at_the_local_time_in_winter_and_in_summer() {
    let windows = zurich(&[Day::Tuesday], "22:00", 120);
    for (day, opens, closes) in [
        ("2026-01-13", "2026-01-13T21:00:00Z", "2026-01-13T23:00:00Z"),
        ("2026-07-14", "2026-07-14T20:00:00Z", "2026-07-14T22:00:00Z"),
    ] {
        let noon = at(&format!("{day}T12:00:00Z"));
        assert_eq!(windows.open_at(noon), closed(opens));
        assert_eq!(windows.open_at(at(opens)), open(closes));
        assert_eq!(
            windows.open_at(at(closes) - SignedDuration::from_secs(1)),
            open(closes)
        );
        assert!(matches!(
            windows.open_at(at(closes)),
            Opening::Closed { .. }
        ));
    }
}

#[test]
fn a_window_over_the_change_to_summer_time_keeps_its_length() {
    // 29 March 2026: 02:00 is followed by 03:00.
    let windows = zurich(&[Day::Saturday], "22:00", 6 * 60);
    assert_eq!(
        windows.open_at(at("2026-03-28T21:00:00Z")),
        open("2026-03-29T03:00:00Z")
    );
    let skipped = zurich(&[Day::Sunday], "02:30", 60);
    assert_eq!(
        skipped.open_at(at("2026-03-29T01:29:59Z")),
        closed("2026-03-29T01:30:00Z")
    );
    assert_eq!(
        skipped.open_at(at("2026-03-29T01:30:00Z")),
        open("2026-03-29T02:30:00Z")
    );
}

#[test]
fn a_window_over_the_change_to_winter_time_opens_once() {
    // 25 October 2026: 03:00 is followed by 02:00.
    let windows = zurich(&[Day::Saturday], "22:00", 6 * 60);
    assert_eq!(
        windows.open_at(at("2026-10-24T20:00:00Z")),
        open("2026-10-25T02:00:00Z")
    );
    let repeated = zurich(&[Day::Sunday], "02:30", 30);
    assert_eq!(
        repeated.open_at(at("2026-10-25T00:30:00Z")),
        open("2026-10-25T01:00:00Z")
    );
    // The second 02:30 of the night opens no second window.
    assert_eq!(
        repeated.open_at(at("2026-10-25T01:30:00Z")),
        closed("2026-11-01T01:30:00Z")
    );
}

#[test]
fn a_freeze_closes_whole_local_days() {
    let mut windows = zurich(&[Day::Thursday, Day::Friday, Day::Saturday], "23:00", 120);
    windows.freezes.push(Freeze {
        first: "2026-12-25".parse().unwrap(),
        last: "2026-12-25".parse().unwrap(),
        reason: "holiday".to_owned(),
    });
    // Thursday's window ends at midnight, and Friday's window begins after its midnight.
    assert_eq!(
        windows.open_at(at("2026-12-24T22:00:00Z")),
        open("2026-12-24T23:00:00Z")
    );
    assert_eq!(
        windows.open_at(at("2026-12-25T12:00:00Z")),
        closed("2026-12-25T23:00:00Z")
    );
    assert_eq!(
        windows.open_at(at("2026-12-25T23:00:00Z")),
        open("2026-12-26T00:00:00Z")
    );
    assert_eq!(
        windows.frozen_at(at("2026-12-25T12:00:00Z")),
        Some(at("2026-12-25T23:00:00Z"))
    );
    assert_eq!(windows.frozen_at(at("2026-12-25T23:00:00Z")), None);
}

#[test]
fn a_window_after_a_long_freeze_is_found() {
    let mut windows = zurich(&[Day::Monday], "10:00", 60);
    for (first, last) in [("2026-12-01", "2027-01-31"), ("2027-02-01", "2027-03-31")] {
        windows.freezes.push(Freeze {
            first: first.parse().unwrap(),
            last: last.parse().unwrap(),
            reason: String::new(),
        });
    }
    assert_eq!(
        windows.open_at(at("2026-12-02T00:00:00Z")),
        closed("2027-04-05T08:00:00Z")
    );
    assert_eq!(
        windows.frozen_at(at("2026-12-02T00:00:00Z")),
        Some(at("2027-03-31T22:00:00Z"))
    );
}

#[test]
fn adjacent_windows_are_open_without_an_end() {
    let daily = zurich(Day::ALL, "00:00", 25 * 60);
    assert_eq!(
        daily.open_at(at("2026-10-25T12:00:00Z")),
        Opening::Open { until: None }
    );
    assert_eq!(
        MaintenanceWindow::always().open_at(start()),
        Opening::Open { until: None }
    );
    let two = zurich(&[Day::Monday, Day::Tuesday], "00:00", 24 * 60);
    assert_eq!(
        two.open_at(at("2026-11-23T12:00:00Z")),
        open("2026-11-24T23:00:00Z")
    );
}

#[test]
fn faults_of_windows_have_pointers_and_an_unknown_zone_is_closed() {
    let mut windows = zurich(&[], "22:00", 14);
    windows.time_zone = "Europe/Zurych".to_owned();
    windows.freezes.push(Freeze {
        first: "2026-12-25".parse().unwrap(),
        last: "2026-12-24".parse().unwrap(),
        reason: String::new(),
    });
    let faults = windows.faults();
    let found: Vec<_> = faults
        .iter()
        .map(|fault| (fault.pointer.as_str(), fault.code))
        .collect();
    let wanted = [
        ("time_zone", "unknown"),
        ("weekly/0/days", "out_of_range"),
        ("weekly/0/length_min", "out_of_range"),
        ("freezes/0/last", "out_of_range"),
    ];
    assert_eq!(found, wanted);
    assert_eq!(windows.open_at(start()), Opening::Closed { opens: None });
    let written = r#"{"time_zone": "Asia/Tokyo", "weekly": [{"days": ["sat", "sun"], "start": "01:00:00", "length_min": 240}], "freezes": [{"first": "2026-12-24", "last": "2027-01-02"}]}"#;
    let read: MaintenanceWindow = serde_json::from_str(written).unwrap();
    assert_eq!(read.faults(), []);
    let again = serde_json::to_string(&read).unwrap();
    assert_eq!(
        serde_json::from_str::<MaintenanceWindow>(&again).unwrap(),
        read
    );
}

#[test]
fn windows_of_site_and_pool_are_open_together() {
    let nights = zurich(Day::ALL, "22:00", 8 * 60);
    let mut tuesday = zurich(&[Day::Tuesday], "04:00", 4 * 60);
    let calendar = |windows: &[&MaintenanceWindow]| Calendar {
        windows: windows.iter().copied().cloned().collect(),
        is_unreadable: false,
    };
    let both = calendar(&[&nights, &tuesday]);
    // 2026-01-13 is a Tuesday. From 4 to 6 o'clock both are open.
    let monday = at("2026-01-12T10:00:00Z");
    assert_eq!(both.open_at(monday), closed("2026-01-13T03:00:00Z"));
    let opened = at("2026-01-13T03:00:00Z");
    assert_eq!(both.open_at(opened), open("2026-01-13T05:00:00Z"));
    let freeze = |first: &str, last: &str| Freeze {
        first: first.parse().unwrap(),
        last: last.parse().unwrap(),
        reason: String::new(),
    };
    // A freeze of one document goes on in a freeze of the other.
    tuesday.freezes = vec![freeze("2026-01-12", "2026-01-13")];
    let mut frozen = nights.clone();
    frozen.freezes = vec![freeze("2026-01-14", "2026-01-15")];
    let both = calendar(&[&frozen, &tuesday]);
    assert_eq!(both.frozen_at(monday), Some(at("2026-01-15T23:00:00Z")));
    assert_eq!(both.open_at(monday), closed("2026-01-20T03:00:00Z"));
    // Noon is never in the night.
    let noon = zurich(Day::ALL, "11:00", 120);
    let never = calendar(&[&nights, &noon]);
    assert_eq!(never.open_at(monday), Opening::Closed { opens: None });
    // A calendar without windows is open, and an unreadable window is closed.
    assert_eq!(calendar(&[]).open_at(monday), Opening::Open { until: None });
    assert!(!calendar(&[]).has_limits());
    let unreadable = Calendar {
        is_unreadable: true,
        ..Calendar::default()
    };
    assert_eq!(unreadable.open_at(monday), Opening::Closed { opens: None });
    assert!(unreadable.has_limits());
}

/// Windows in zones with different rules of summer time.
fn some_windows() -> impl Strategy<Value = MaintenanceWindow> {
    let zones = [
        "Europe/Zurich",
        "America/New_York",
        "Australia/Lord_Howe",
        "Asia/Tokyo",
    ];
    let weekly = (
        prop::sample::subsequence(Day::ALL, 1..=7),
        0..24_i8,
        0..60_i8,
        15..3000_u32,
    );
    let weekly = weekly.prop_map(|(days, hour, minute, length_min)| Weekly {
        days,
        start: Time::new(hour, minute, 0, 0).unwrap(),
        length_min,
    });
    let freeze = (0..40_i32, 0..10_i32).prop_map(|(first, days)| {
        let first = Date::new(2026, 3, 1)
            .unwrap()
            .saturating_add(jiff::Span::new().days(first));
        let last = first.saturating_add(jiff::Span::new().days(days));
        Freeze {
            first,
            last,
            reason: String::new(),
        }
    });
    let weekly = prop::collection::vec(weekly, 1..4);
    let freezes = prop::collection::vec(freeze, 0..3);
    (prop::sample::select(zones.to_vec()), weekly, freezes).prop_map(|(zone, weekly, freezes)| {
        MaintenanceWindow {
            time_zone: zone.to_owned(),
            weekly,
            freezes,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// The announced change is the next change, to the second.
    #[test]
    fn an_opening_holds_until_its_announced_end(
        windows in prop::collection::vec(some_windows(), 0..4),
        after_min in 0..60_000_i64,
    ) {
        let now = at("2026-03-01T00:00:00Z") + minutes(after_min);
        let second = SignedDuration::from_secs(1);
        let calendar = Calendar { windows, is_unreadable: false };
        let is_open = |time| matches!(calendar.open_at(time), Opening::Open { .. });
        let all_open = |time| calendar.windows.iter().all(|one| matches!(one.open_at(time), Opening::Open { .. }));
        prop_assert_eq!(is_open(now), all_open(now));
        match calendar.open_at(now) {
            Opening::Open { until: Some(until) } => {
                prop_assert!(until > now);
                prop_assert!(!is_open(until));
                prop_assert_eq!(calendar.open_at(until - second), Opening::Open { until: Some(until) });
            }
            Opening::Open { until: None } => prop_assert!(calendar.frozen_at(now).is_none()),
            Opening::Closed { opens: Some(opens) } => {
                prop_assert!(opens > now && calendar.frozen_at(opens).is_none());
                prop_assert!(is_open(opens));
                prop_assert_eq!(calendar.open_at(opens - second), Opening::Closed { opens: Some(opens) });
                // No common opening is missed.
                let hours = opens.duration_since(now).as_secs() / 3600;
                for hour in 0..hours {
                    prop_assert!(!all_open(now + SignedDuration::from_hours(hour)));
                }
            }
            // Windows of several documents may never be open together.
            Opening::Closed { opens: None } => prop_assert!(calendar.windows.len() > 1),
        }
        // In steps of 7 h over 60 days: longer than windows look ahead.
        let from = now - SignedDuration::from_hours(60 * 24);
        let closed = calendar.list_closed(from, now);
        for step in 0..205 {
            let time = from + SignedDuration::from_hours(7 * step);
            let is_listed = closed.iter().any(|period| period.start <= time && time < period.end);
            prop_assert_eq!(is_listed, !is_open(time), "{}", time);
        }
        if let Some(end) = calendar.frozen_at(now) {
            prop_assert!(!is_open(now) && end > now);
            prop_assert!(calendar.windows.iter().all(|one| one.frozen_at(end).is_none()));
            prop_assert_eq!(calendar.frozen_at(end - second), Some(end));
        }
    }
}
