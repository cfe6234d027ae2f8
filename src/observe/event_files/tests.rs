use std::fs;

use tempfile::TempDir;

use super::*;

const NOW: Timestamp = Timestamp::from_seconds(1_800_000_000);
const DAY: Duration = Duration::from_hours(24);
const KEEP: Duration = Duration::from_hours(24 * 16);

fn retention(max_bytes: u64) -> EventRetention {
    EventRetention {
        max_bytes,
        keep: Some(KEEP),
        routine: None,
    }
}

/// The file of security events in a data directory, with so many bytes for all.
fn event_file(data: &TempDir, max_bytes: u64) -> EventFile {
    EventFile::new(
        data.path(),
        EventKind::Security,
        &retention(max_bytes),
        Clock::System,
    )
}

fn read(data: &TempDir, name: &str) -> Option<String> {
    fs::read_to_string(data.path().join(EVENTS).join(name)).ok()
}

/// Creates a file with events of these times.
fn create(data: &TempDir, number: u32, times: &[Timestamp]) {
    let folder = data.path().join(EVENTS);
    fs::create_dir_all(&folder).unwrap();
    let line = |time: &Timestamp| format!("{{\"time\":{},\"event\":\"signed_in\"}}\n", time.seconds());
    let text: String = times.iter().map(line).collect();
    fs::write(folder.join(EventKind::Security.file_name(number)), text).unwrap();
}

/// The numbers of the files that there are.
fn numbers(data: &TempDir) -> Vec<u32> {
    let is_there = |number: &u32| read(data, &EventKind::Security.file_name(*number)).is_some();
    (0..FILES).filter(is_there).collect()
}

#[test]
fn the_files_stay_within_the_size_and_the_oldest_goes() {
    let data = TempDir::new().unwrap();
    let mut file = event_file(&data, 1600);
    let mut write = |number: u32| {
        let line = format!("{{\"number\":{number}}}\n");
        file.write_all(line.as_bytes()).unwrap();
    };
    (0..60).for_each(&mut write);
    assert!(read(&data, "events.removed").is_none());
    for number in 60..600 {
        write(number);
        let sizes = fs::read_dir(data.path().join(EVENTS)).unwrap();
        let sizes = sizes.map(|entry| entry.unwrap().metadata().unwrap().len());
        assert!(sizes.sum::<u64>() <= 1600);
    }
    // A file has room for six of these lines.
    assert_eq!(numbers(&data), (0..17).collect::<Vec<_>>());
    assert!(read(&data, "events.jsonl").unwrap().contains("599"));
    assert_eq!(read(&data, "events.removed").unwrap(), "");
}

#[test]
fn the_extent_is_that_of_all_files_and_its_oldest_event_the_first_of_the_oldest_file() {
    let data = TempDir::new().unwrap();
    let extent = || extent(data.path(), EventKind::Security);
    assert!(extent().is_err(), "there is no folder");
    for (number, time) in [(2, NOW), (0, NOW + DAY)] {
        create(&data, number, &[time; 3]);
    }
    create(&data, 3, &[]);
    let bytes = 6 * u64::try_from("{\"time\":1800000000,\"event\":\"signed_in\"}\n".len()).unwrap();
    let oldest = Some(NOW);
    assert_eq!(extent().unwrap(), Extent { bytes, oldest });
}

#[test]
fn each_kind_has_half_of_the_size_and_the_kept_one_all_of_it() {
    let data = TempDir::new().unwrap();
    let bytes = |tokens| {
        let retention = EventRetention {
            routine: tokens,
            ..retention(64)
        };
        EventKind::ALL.map(|kind| {
            let file = EventFile::new(data.path(), kind, &retention, Clock::System);
            (file.max_bytes, file.keep)
        })
    };
    assert_eq!(bytes(Some(DAY)), [(32, Some(KEEP)), (32, Some(DAY))]);
    assert_eq!(bytes(None), [(64, Some(KEEP)), (64, Some(Duration::ZERO))]);
}

#[test]
fn files_of_an_earlier_release_are_removed_when_there_is_no_room_and_not_before() {
    let data = TempDir::new().unwrap();
    let mut file = event_file(&data, 1600);
    for number in 0..4 {
        create(&data, number, &[NOW; 10]);
    }
    let size = u64::try_from(read(&data, "events.jsonl").unwrap().len()).unwrap();
    file.max_bytes = 5 * size;
    file.remove_expired(NOW);
    assert_eq!(numbers(&data), [0, 1, 2, 3]);
    file.max_bytes = 3 * size;
    file.remove_expired(NOW);
    assert_eq!(numbers(&data), [0, 1, 2]);
}

#[test]
fn events_are_removed_when_the_newest_of_their_file_is_too_old() {
    let data = TempDir::new().unwrap();
    let mut file = event_file(&data, 1 << 20);
    let begun = NOW;
    let mut seen = Vec::new();
    // An event every six hours, for two months.
    for hours in (0..24 * 60).step_by(6) {
        let now = begun + Duration::from_hours(hours);
        writeln!(file, "{{\"time\":{},\"event\":\"signed_in\"}}", now.seconds()).unwrap();
        file.remove_expired(now);
        let folder = folder(data.path()).unwrap();
        let oldest = numbers(&data).into_iter().next_back().unwrap();
        let [first, _] = time_range(&folder, &EventKind::Security.file_name(oldest)).unwrap();
        seen.push(now.since(first.unwrap()));
    }
    let longest = seen.iter().max().unwrap();
    assert!(*longest >= KEEP && *longest <= KEEP + 2 * DAY, "{longest:?}");
    assert!(seen.iter().rev().take(100).all(|kept| *kept >= KEEP), "{seen:?}");
    // Nothing more happens.
    file.remove_expired(begun + 100 * DAY);
    assert_eq!(numbers(&data), Vec::<u32>::new());
    writeln!(file, "{{}}").unwrap();
    assert_eq!(read(&data, "events.jsonl").unwrap(), "{}\n");
}

#[test]
fn a_time_that_was_wrong_removes_no_other_file_and_keeps_none() {
    let (old, new) = (NOW - 20 * DAY, NOW - DAY);
    let (past, future) = (Timestamp::from_seconds(7), NOW + 3650 * DAY);
    for (files, kept) in [
        // From the oldest to the newest.
        (&[&[old][..], &[new]][..], &[0][..]),
        (&[&[new], &[old], &[new]], &[0, 1, 2]),
        (&[&[new], &[past], &[new]], &[0, 1, 2]),
        (&[&[old], &[future], &[old, past], &[new]], &[0]),
        (&[&[past], &[new]], &[0, 1]),
        (&[&[past], &[old], &[new]], &[0]),
        (&[&[old, future], &[new]], &[0]),
        (&[&[old], &[new, future]], &[0]),
    ] {
        let data = TempDir::new().unwrap();
        for (number, times) in (0..).zip(files.iter().rev()) {
            create(&data, number, times);
        }
        let mut file = event_file(&data, 1 << 20);
        for early in [past, NOW - 40 * DAY] {
            file.remove_expired(early);
            assert_eq!(numbers(&data).len(), files.len(), "{files:?}");
        }
        file.remove_expired(NOW);
        // The newest file is closed when its first event lies ahead.
        let left: Vec<u32> = numbers(&data).into_iter().map(|number| number - 1).collect();
        assert_eq!(left, kept, "{files:?}");
    }
}

#[test]
fn a_line_that_a_killed_process_cut_is_ended() {
    let data = TempDir::new().unwrap();
    let folder = data.path().join(EVENTS);
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("events.jsonl"), "{\"cut\":").unwrap();
    let mut file = event_file(&data, 1 << 20);
    file.write_all(b"{}\n").unwrap();
    file.write_all(&file.lost_note(3)).unwrap();
    let text = read(&data, "events.jsonl").unwrap();
    assert!(text.starts_with("{\"cut\":\n{}\n"), "{text}");
    assert!(text.contains("\"event\":\"events_lost\""), "{text}");
    assert!(text.contains("\"count\":3"), "{text}");
}

#[test]
fn a_line_goes_on_in_the_file_where_it_began() {
    let data = TempDir::new().unwrap();
    let mut file = event_file(&data, 160);
    file.write_all(b"{\"half\":").unwrap();
    file.remove_expired(NOW);
    file.write_all(b"1}\n").unwrap();
    file.write_all(b"{}\n").unwrap();
    assert_eq!(read(&data, "events.1.jsonl").unwrap(), "{\"half\":1}\n");
    assert_eq!(read(&data, "events.jsonl").unwrap(), "{}\n");
}
