//! The fuzzer: the one target that `IDSVC_FUZZ_TARGET` names. `tests/fuzz/run` starts it.

#![no_main]

mod properties;

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

static TARGET: LazyLock<fn(&[u8]) -> bool> = LazyLock::new(|| {
    let name = std::env::var("IDSVC_FUZZ_TARGET").unwrap_or_default();
    let found = properties::TARGETS.iter().find(|(known, _)| *known == name);
    found
        .unwrap_or_else(|| panic!("IDSVC_FUZZ_TARGET names no target: {name:?}"))
        .1
});

fuzz_target!(|data: &[u8]| {
    (*TARGET)(data);
});
