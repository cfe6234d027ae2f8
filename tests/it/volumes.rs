//! Data directories as orchestrators of containers give them to a pod.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::harness::process::Service;
use super::harness::report::report;

/// The user and the groups of a container.
struct Container {
    uid: u32,
    gid: u32,
    groups: &'static [u32],
}

/// What a container finds at its data directory.
struct Volume {
    owner: u32,
    group: u32,
    mode: u32,
}

const NONROOT: Container = Container {
    uid: 65532,
    gid: 65532,
    groups: &[65532],
};

/// A service whose commands run in the container. None if this machine does not permit it.
fn contained(container: &Container, volume: &Volume) -> Option<Service> {
    let groups = match container.groups {
        [] => "--clear-groups".to_owned(),
        groups => {
            let groups: Vec<_> = groups.iter().map(ToString::to_string).collect();
            format!("--groups={}", groups.join(","))
        }
    };
    let user = format!("--reuid={}", container.uid);
    let group = format!("--regid={}", container.gid);
    let wrapper = ["setpriv".to_owned(), user, group, groups];
    let service = Service::empty().by(&wrapper);
    fs::set_permissions(service.folder.path(), Permissions::from_mode(0o755)).unwrap();
    let can_run = service.command(&["--version"]).output();
    if !can_run.is_ok_and(|ran| ran.status.success()) {
        report(
            "data directories of pods",
            "NOT RUN: only root runs commands as other users",
        );
        return None;
    }
    fs::create_dir(service.data()).unwrap();
    chown(service.data(), Some(volume.owner), Some(volume.group)).unwrap();
    set_mode(&service.data(), volume.mode);
    Some(service)
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

/// All that is in a folder, with the folders in it.
fn all_in(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(all_in(&path));
        }
        found.push(path);
    }
    found
}

/// Opens all that is in a volume to a group, as the kubelet does before it starts a container.
fn open_to_group(volume: &Path, group: u32) {
    for path in all_in(volume).into_iter().chain([volume.to_owned()]) {
        let bits = if path.is_dir() { 0o2070 } else { 0o060 };
        let user = fs::metadata(&path).unwrap().uid();
        chown(&path, Some(user), Some(group)).unwrap();
        set_mode(&path, mode(&path) | bits);
    }
}

/// Starts the service, uses it, stops it, and says what is open to a group or others then.
fn start_and_stop(service: &Service) -> Vec<PathBuf> {
    let mut running = service.serve();
    for words in [&["backup"][..], &["user", "list"], &["doctor"]] {
        let ran = service.run(words);
        let told = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(ran.status.success(), "{words:?}: {ran:?} {told}");
    }
    assert_eq!(mode(&service.data().join("control.sock")), 0o600);
    let found = all_in(&service.data());
    running.kill();
    let is_open = |path: &PathBuf| fs::metadata(path).is_ok_and(|found| found.mode() & 0o077 != 0);
    found.into_iter().filter(is_open).collect()
}

#[test]
fn a_volume_of_root_with_fs_group_is_started_on_again_and_again() {
    let volume = Volume {
        owner: 0,
        group: 65532,
        mode: 0o2775,
    };
    let Some(service) = contained(&NONROOT, &volume) else {
        return;
    };
    assert_eq!(start_and_stop(&service), [] as [PathBuf; 0]);
    let database = service.data().join("idsvc.redb");
    for _ in 0..2 {
        open_to_group(&service.data(), 65532);
        // A file system puts this folder of root into each volume.
        let _ = fs::create_dir(service.data().join("lost+found"));
        set_mode(&service.data().join("lost+found"), 0o700);
        assert_eq!(mode(&database) & 0o070, 0o060);
        assert_eq!(start_and_stop(&service), [] as [PathBuf; 0]);
    }
    assert_eq!(mode(&service.data()), 0o2775, "it is not the service's to change");
    let warned = service.logged("is open to group 65532");
    assert!(!warned.contains("chmod"), "{warned}");
}

#[test]
fn a_file_that_root_restored_into_a_volume_is_used_by_the_group() {
    let volume = Volume {
        owner: 0,
        group: 65532,
        mode: 0o2775,
    };
    let Some(service) = contained(&NONROOT, &volume) else {
        return;
    };
    start_and_stop(&service);
    for path in all_in(&service.data()) {
        chown(path, Some(0), Some(0)).unwrap();
    }
    open_to_group(&service.data(), 65532);
    start_and_stop(&service);
}

#[test]
fn a_volume_of_group_root_is_started_on_again_by_a_user_whom_only_that_group_has() {
    let openshift = Container {
        uid: 1_000_660_000,
        gid: 0,
        groups: &[1_000_660_000],
    };
    let volume = Volume {
        owner: 0,
        group: 0,
        mode: 0o775,
    };
    let Some(service) = contained(&openshift, &volume) else {
        return;
    };
    for _ in 0..2 {
        assert_eq!(start_and_stop(&service), [] as [PathBuf; 0]);
        open_to_group(&service.data(), 0);
    }
}

#[test]
fn a_volume_that_the_service_owns_is_closed_to_its_group() {
    let openshift = Container {
        uid: 1_000_660_000,
        gid: 0,
        groups: &[],
    };
    let volume = Volume {
        owner: 1_000_660_000,
        group: 0,
        mode: 0o770,
    };
    let Some(service) = contained(&openshift, &volume) else {
        return;
    };
    for _ in 0..2 {
        assert_eq!(start_and_stop(&service), [] as [PathBuf; 0]);
        assert_eq!(mode(&service.data()) & 0o777, 0o700);
        open_to_group(&service.data(), 0);
    }
}

#[test]
fn a_volume_that_is_open_to_everybody_is_refused_and_a_folder_in_it_is_not() {
    let volume = Volume {
        owner: 0,
        group: 0,
        mode: 0o777,
    };
    let Some(service) = contained(&NONROOT, &volume) else {
        return;
    };
    let below = service.data().join("idsvc");
    for words in [&["serve"][..], &["user", "list"], &["backup"]] {
        let refused = service.run(words);
        let told = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(1), "{words:?}: {told}");
        assert!(told.contains("by everybody (777)"), "{words:?}: {told}");
        let remedy = format!("--data-dir {}", below.display());
        assert!(told.contains(&remedy), "{words:?}: {told}");
    }
    assert_eq!(all_in(&service.data()), [] as [PathBuf; 0]);
    let service = service.with("IDSVC_DATA_DIR", below.to_str().unwrap());
    let running = service.serve();
    assert_eq!(mode(&below), 0o700);
    drop(running);
    open_to_group(&below, 65532);
    let _running = service.serve();
    assert_eq!(mode(&below) & 0o777, 0o700);
}

#[test]
fn a_volume_of_another_group_or_owner_is_refused_with_what_a_pod_can_set() {
    for (owner, part) in [
        (0, "securityContext.fsGroup: 4711"),
        (4711, "securityContext.runAsUser: 4711"),
    ] {
        let volume = Volume {
            owner,
            group: 4711,
            mode: 0o2775,
        };
        let Some(service) = contained(&NONROOT, &volume) else {
            return;
        };
        let refused = service.run(&["serve"]);
        let told = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(1), "{told}");
        assert!(told.contains(part), "{told}");
    }
}

#[test]
fn what_belongs_to_others_stays_as_open_as_it_was() {
    let volume = Volume {
        owner: 65532,
        group: 65532,
        mode: 0o2770,
    };
    let Some(service) = contained(&NONROOT, &volume) else {
        return;
    };
    let foreign = service.data().join("foreign");
    fs::write(&foreign, "").unwrap();
    set_mode(&foreign, 0o660);
    let outside = service.folder.path().join("outside");
    fs::write(&outside, "").unwrap();
    chown(&outside, Some(65532), Some(65532)).unwrap();
    set_mode(&outside, 0o660);
    std::os::unix::fs::symlink(&outside, service.data().join("link")).unwrap();
    fs::hard_link(&outside, service.data().join("second-name")).unwrap();
    let made = Command::new("mkfifo").arg(service.data().join("pipe")).status();
    assert!(made.unwrap().success());
    let _running = service.serve();
    assert_eq!((mode(&foreign), mode(&outside)), (0o660, 0o660));
    assert_eq!(mode(&service.data()) & 0o777, 0o700);
}

#[test]
fn what_a_member_of_the_group_put_into_a_volume_is_not_used() {
    const MEMBER: u32 = 64_244;
    for (owner, group) in [(0, 65532), (65532, 65532)] {
        let volume = Volume {
            owner,
            group,
            mode: 0o2770,
        };
        let Some(service) = contained(&NONROOT, &volume) else {
            return;
        };
        start_and_stop(&service);
        open_to_group(&service.data(), group);
        let folder = service.data().join("themes");
        fs::create_dir(&folder).unwrap();
        chown(&folder, Some(65532), Some(group)).unwrap();
        let files = ["master.key", "idsvc.redb"].map(|name| service.data().join(name));
        for foreign in files.into_iter().chain([folder]) {
            chown(&foreign, Some(MEMBER), Some(group)).unwrap();
            for words in [&["user", "list"][..], &["serve"]] {
                let refused = service.run(words);
                let told = String::from_utf8_lossy(&refused.stderr).into_owned();
                assert_eq!(refused.status.code(), Some(1), "{words:?}: {told}");
                let said = format!("{} belongs to user {MEMBER}", foreign.display());
                assert!(told.contains(&said), "{words:?}: {told}");
                let remedy = format!("chown -Rh 65532 {}", foreign.display());
                assert!(told.contains(&remedy), "{words:?}: {told}");
            }
            assert_eq!(mode(&service.data()) & 0o070, 0o070, "it is not closed around it");
            chown(&foreign, Some(65532), Some(group)).unwrap();
        }
        start_and_stop(&service);
    }
}

#[test]
fn a_closed_data_directory_is_used_whoever_owns_what_is_in_it() {
    let volume = Volume {
        owner: 65532,
        group: 65532,
        mode: 0o700,
    };
    let Some(service) = contained(&NONROOT, &volume) else {
        return;
    };
    let notes = service.data().join("notes");
    fs::write(&notes, "").unwrap();
    chown(&notes, Some(64_244), Some(64_244)).unwrap();
    start_and_stop(&service);
}
