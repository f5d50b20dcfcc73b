//! Faults of arrays and hosts, in texts without a recording.

use super::{fixture, read};

#[test]
fn bad_news_of_arrays_is_read_as_such() {
    let stopped = "Personalities : [raid1] \nmd127 : inactive sda[0](S)\n      8 blocks super 1.2\n\nunused devices: <none>\n";
    let reading = read("mdstat", stopped).expect("an array that does not run");
    assert_eq!(
        (
            reading.number("raid.inactive", "md127"),
            reading.number("raid.devices_missing", "md127")
        ),
        (Some(1.0), None)
    );

    let short = "/dev/md0:\n           Version : 1.2\n        Raid Level : raid0\n     Total Devices : 1\n\n             State : inactive\n   \
                 Working Devices : 1\n\n    Number   Major   Minor   RaidDevice\n\n       -       8       48        -        /dev/sdd\n";
    let reading = read("mdadm-detail", short).expect("an array that does not run");
    assert_eq!(
        (
            reading.number("raid.inactive", "md0"),
            reading.number("raid.devices_missing", "md0")
        ),
        (Some(1.0), None)
    );
    let rebuilding = fixture("mdadm-raid1-degraded.txt")
        .replace("clean, degraded", "clean, degraded, recovering");
    assert_eq!(
        read("mdadm-detail", &rebuilding)
            .expect("a reading")
            .number("raid.rebuilding", "md0"),
        Some(1.0)
    );
    assert!(
        read("mdadm-detail", &rebuilding.replace("degraded, ", "")).is_err(),
        "one of two devices, and not degraded"
    );
}

/// The output of the kernel and mdadm for a mirror of Intel VROC. The container never runs. A
/// stopped array in the container is a fault.
#[test]
fn the_container_of_an_array_is_none_itself() {
    let text = "Personalities : [raid1] \nmd126 : active raid1 nvme0n1[1] nvme1n1[0]\n      5201 blocks super external:/md127/0 [2/2] [UU]\n      \n\
                md127 : inactive nvme0n1[1](S) nvme1n1[0](S)\n      10402 blocks super external:imsm\n       \nunused devices: <none>\n";
    let reading = read("mdstat", text).expect("an array");
    let of = |metric, array| reading.number(metric, array);
    assert_eq!(
        (
            of("raid.arrays", ""),
            of("raid.inactive", "md126"),
            of("raid.inactive", "md127")
        ),
        (Some(1.0), Some(0.0), None)
    );
    assert_eq!(read("mdstat", &text.replace("imsm", "ddf")), Ok(reading));
    // An array in the container, an array without mdmon, and unknown metadata.
    for metadata in [
        "external:/md128/0",
        "external:-md128/0",
        "external:new",
        "1.2",
    ] {
        let reading = read("mdstat", &text.replace("external:imsm", metadata)).expect("two arrays");
        let found = (
            reading.number("raid.arrays", ""),
            reading.number("raid.inactive", "md127"),
        );
        assert_eq!(found, (Some(2.0), Some(1.0)), "{metadata}");
    }

    let plain = fixture("mdadm-raid1-degraded.txt");
    let held = plain.replace(
        "           Version : 1.2",
        "         Container : /dev/md/imsm0, member 0",
    );
    assert_eq!(read("mdadm-detail", &held), read("mdadm-detail", &plain));
    assert!(
        read("mdadm-detail", &held.replace(", member 0", "")).is_err(),
        "a container of nothing known"
    );
    assert!(
        read("mdadm-detail", &held.replace("Container", "Contained")).is_err(),
        "neither of the two"
    );
}

#[test]
fn bad_news_of_hosts_is_read_as_such() {
    let log = "[    1.000000] a message\n  of two lines\n[    2.000000] another\n";
    assert_eq!(
        read("kernel-log", log)
            .expect("a log")
            .number("kernel.lines", ""),
        Some(2.0)
    );
    assert!(
        read("kernel-log", "  of two lines\n[    2.000000] another\n").is_err(),
        "the rest of nothing"
    );

    let host = r#"[{"id":"h","class":"system","children":[{"id":"cpu:0","class":"processor"},{"id":"cpu:1","class":"processor","disabled":true},
        {"id":"memory","class":"memory","description":"System Memory","size":1073741824,"children":[
            {"id":"bank:0","class":"memory","size":1073741824},{"id":"bank:1","class":"memory","description":"[empty]"}]},
        {"id":"network:0","class":"network","claimed":false},{"id":"network:1","class":"network","logicalname":"eth0"}]}]"#;
    let reading = read("lshw", host).expect("a machine");
    let counts = [
        "host.processors",
        "host.memory_modules",
        "host.memory_slots_empty",
        "host.nics",
        "host.unclaimed",
        "host.memory",
    ];
    assert_eq!(
        counts.map(|metric| reading.number(metric, "")),
        [1.0, 1.0, 1.0, 1.0, 1.0, 1024.0].map(Some)
    );
}
