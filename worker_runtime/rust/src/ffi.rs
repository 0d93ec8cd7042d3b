//! The functions and structs of crunrt.h that this crate uses. Each struct of options begins with
//! its size, so a later library accepts it unchanged.

use std::os::raw::{c_char, c_int, c_void};

#[repr(C)]
pub struct Runtime {
    _private: [u8; 0],
}

#[repr(C)]
pub struct Store {
    _private: [u8; 0],
}

#[repr(C)]
pub struct Group {
    _private: [u8; 0],
}

#[repr(C)]
pub struct InitOptions {
    pub size: usize,
    pub method: *const c_char,
    pub rank: c_int,
    pub world_size: c_int,
    pub timeout_ms: i64,
}

#[repr(C)]
pub struct RejoinOptions {
    pub size: usize,
    pub timeout_ms: i64,
}

#[repr(C)]
pub struct Change {
    pub size: usize,
    pub kind: c_int,
    pub left_ms: i64,
    pub step: u64,
    pub reason: [c_char; 256],
}

#[repr(C)]
pub struct GroupOptions {
    pub size: usize,
    pub backend: *const c_char,
    pub name: *const c_char,
    pub ranks: *const c_int,
    pub rank_count: usize,
    pub timeout_ms: i64,
    pub device: c_int,
    pub stream: *mut c_void,
    pub foreign_prefix: *const c_char,
    pub nccl: *const c_void,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Op {
    pub size: usize,
    pub kind: c_int,
    pub dtype: c_int,
    pub reduce: c_int,
    pub root: c_int,
    pub tag: u32,
    pub send: *const c_void,
    pub recv: *mut c_void,
    pub count: usize,
    pub send_counts: *const usize,
    pub recv_counts: *const usize,
    pub timeout_ms: i64,
    pub stream: *mut c_void,
    pub factor: *const c_void,
}

extern "C" {
    pub fn crunrt_last_error() -> *const c_char;
    pub fn crunrt_free(memory: *mut c_void);

    pub fn crunrt_init_options_size() -> usize;
    pub fn crunrt_init_options_init(options: *mut InitOptions);
    pub fn crunrt_rejoin_options_size() -> usize;
    pub fn crunrt_rejoin_options_init(options: *mut RejoinOptions);
    pub fn crunrt_change_size() -> usize;
    pub fn crunrt_change_init(change: *mut Change);
    pub fn crunrt_group_options_size() -> usize;
    pub fn crunrt_group_options_init(options: *mut GroupOptions);
    pub fn crunrt_op_size() -> usize;
    pub fn crunrt_op_init(op: *mut Op);

    pub fn crunrt_init(options: *const InitOptions, out: *mut *mut Runtime) -> c_int;
    pub fn crunrt_destroy(rt: *mut Runtime);
    pub fn crunrt_rank(rt: *const Runtime) -> c_int;
    pub fn crunrt_world_size(rt: *const Runtime) -> c_int;
    pub fn crunrt_local_rank(rt: *const Runtime) -> c_int;
    pub fn crunrt_restart_count(rt: *const Runtime) -> c_int;
    pub fn crunrt_rejoin(rt: *mut Runtime, options: *const RejoinOptions) -> c_int;
    pub fn crunrt_can_rejoin(rt: *mut Runtime, yes: c_int) -> c_int;
    pub fn crunrt_step(rt: *mut Runtime, change: *mut Change) -> c_int;
    pub fn crunrt_change_done(rt: *mut Runtime) -> c_int;
    pub fn crunrt_report_error(message: *const c_char, detail: *const c_char) -> c_int;

    pub fn crunrt_job_store(rt: *mut Runtime) -> *mut Store;
    pub fn crunrt_store_set(
        store: *mut Store, key: *const c_char, value: *const c_void, len: usize,
    ) -> c_int;
    pub fn crunrt_store_get(
        store: *mut Store, key: *const c_char, timeout_ms: i64, value: *mut *mut c_void,
        len: *mut usize,
    ) -> c_int;
    pub fn crunrt_store_add(
        store: *mut Store, key: *const c_char, delta: i64, total: *mut i64,
    ) -> c_int;

    pub fn crunrt_group_new(
        rt: *mut Runtime, options: *const GroupOptions, out: *mut *mut Group,
    ) -> c_int;
    pub fn crunrt_group_destroy(group: *mut Group);
    pub fn crunrt_group_rank(group: *const Group) -> c_int;
    pub fn crunrt_group_size(group: *const Group) -> c_int;
    pub fn crunrt_group_run(group: *mut Group, op: *const Op) -> c_int;
    pub fn crunrt_group_batch(group: *mut Group, ops: *const Op, count: usize) -> c_int;
    pub fn crunrt_group_monitored_barrier(group: *mut Group, timeout_ms: i64) -> c_int;
}

