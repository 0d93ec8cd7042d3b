//! The worker runtime of crun in Rust: a worker learns its rank, shares small values in the job's
//! store, makes process groups on slices of numbers, and goes on in its process after a failure.
//!
//! ```no_run
//! let rt = crunrt::Runtime::new()?;
//! let mut world = rt.group()?;
//! let mut gradients = vec![0.5_f32; 1000];
//! world.all_reduce(&mut gradients, crunrt::Reduce::Sum)?;
//! # Ok::<(), crunrt::Error>(())
//! ```
//!
//! Every call waits until it is done, so that a slice can be used again when the call returns.
//! Buffers are in host memory. `crunrt.h` documents each call and its errors.

#![deny(missing_docs)]

mod ffi;

use std::ffi::{CStr, CString};
use std::fmt;
use std::marker::PhantomData;
use std::os::raw::{c_int, c_void};
use std::ptr;
use std::time::Duration;

/// A failure: a negative errno, and one line that says what was tried, on what, why it failed, and
/// what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// The negative errno, for example -110 (ETIMEDOUT).
    pub code: i32,
    /// The text of crunrt_last_error().
    pub text: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}

/// The result of a call of this crate.
pub type Result<T> = std::result::Result<T, Error>;

const EINVAL: i32 = 22;

fn check(rc: c_int) -> Result<c_int> {
    if rc >= 0 {
        return Ok(rc);
    }
    // SAFETY: the text is valid until the next call of the library on this thread.
    let text = unsafe { CStr::from_ptr(ffi::crunrt_last_error()) };
    Err(Error { code: rc, text: text.to_string_lossy().into_owned() })
}

fn refuse(text: String) -> Error {
    Error { code: -EINVAL, text }
}

fn c_text(text: &str, what: &str) -> Result<CString> {
    CString::new(text).map_err(|_| refuse(format!("{what}: '{text:?}' contains a NUL")))
}

/// Returns a struct of options that the library has initialised. The library's struct may be larger
/// than `T`, if the library is newer; so the library writes to memory of its own size.
fn initialised<T>(size: usize, init: unsafe extern "C" fn(*mut T), set_size: fn(&mut T)) -> T {
    let room = size.max(std::mem::size_of::<T>());
    let mut memory = vec![0_u64; (room + 7) / 8];
    let at = memory.as_mut_ptr().cast::<T>();
    // SAFETY: `memory` is aligned for T, is as large as the library's struct, and is zeroed; all
    // members of the structs of ffi may be zero.
    let mut value = unsafe {
        init(at);
        ptr::read(at)
    };
    set_size(&mut value);
    value
}

macro_rules! options {
    ($kind:ident, $size:ident, $init:ident) => {
        // SAFETY: the function has no arguments and only returns a number.
        initialised::<ffi::$kind>(unsafe { ffi::$size() }, ffi::$init, |o| {
            o.size = std::mem::size_of::<ffi::$kind>()
        })
    };
}

mod sealed {
    pub trait Sealed {}
}

/// A type of numbers that operations can move and reduce.
pub trait Number: Copy + Default + sealed::Sealed {
    /// The type's number in crunrt.h.
    const DTYPE: c_int;
}

macro_rules! numbers {
    ($($t:ty = $n:expr),*) => {
        $(impl sealed::Sealed for $t {}
        impl Number for $t {
            const DTYPE: c_int = $n;
        })*
    };
}
numbers!(i8 = 0, u8 = 1, i32 = 2, u32 = 3, i64 = 4, u64 = 5, f32 = 7, f64 = 8);

/// A reduction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Reduce {
    Sum = 0,
    Product = 1,
    Max = 2,
    Min = 3,
    /// Only for floating types.
    Average = 4,
    /// This one and the next two are bitwise, only for integers.
    And = 5,
    Or = 6,
    Xor = 7,
}

/// An announced change, for which all ranks stop after the same step.
#[derive(Debug, Clone)]
pub struct Change {
    /// How long until crun stops this process, whether it is ready or not.
    pub left: Duration,
    /// How many steps this rank has made in this round.
    pub step: u64,
    /// Why the change happens, in one line.
    pub reason: String,
}

/// This process's place in the job.
pub struct Runtime {
    at: *mut ffi::Runtime,
}

impl Runtime {
    /// Finds rank, world size and store in the environment, and connects to the store.
    pub fn new() -> Result<Runtime> {
        Runtime::start(None)
    }

    /// Does the same by a method: "env://", "tcp://HOST:PORT?rank=R&world_size=N" or "file:///PATH…".
    pub fn with_method(method: &str) -> Result<Runtime> {
        Runtime::start(Some(&c_text(method, "start")?))
    }

    fn start(method: Option<&CStr>) -> Result<Runtime> {
        let mut options = options!(InitOptions, crunrt_init_options_size, crunrt_init_options_init);
        options.method = method.map_or(ptr::null(), CStr::as_ptr);
        let mut at = ptr::null_mut();
        // SAFETY: the options and their text are valid during the call.
        check(unsafe { ffi::crunrt_init(&options, &mut at) })?;
        Ok(Runtime { at })
    }

    /// This process's rank in the job.
    pub fn rank(&self) -> usize {
        // SAFETY: `at` is valid until drop().
        unsafe { ffi::crunrt_rank(self.at) as usize }
    }

    /// The number of processes in the job.
    pub fn world_size(&self) -> usize {
        // SAFETY: `at` is valid until drop().
        unsafe { ffi::crunrt_world_size(self.at) as usize }
    }

    /// The rank on this node, if it is known.
    pub fn local_rank(&self) -> Option<usize> {
        // SAFETY: `at` is valid until drop().
        usize::try_from(unsafe { ffi::crunrt_local_rank(self.at) }).ok()
    }

    /// How often the job has been restarted.
    pub fn restart_count(&self) -> usize {
        // SAFETY: `at` is valid until drop().
        unsafe { ffi::crunrt_restart_count(self.at) as usize }
    }

    /// The job's store.
    pub fn store(&self) -> Store<'_> {
        // SAFETY: the store is valid as long as the runtime is.
        Store { at: unsafe { ffi::crunrt_job_store(self.at) }, _runtime: PhantomData }
    }

    /// Makes a group of all ranks on the default backend.
    pub fn group(&self) -> Result<Group<'_>> {
        let all = GroupOptions::default();
        Ok(self.group_with(&all)?.expect("every rank is in a group of all ranks"))
    }

    /// Makes a group. All ranks of the job call this in the same order; a rank that is not in
    /// `options.ranks` gets None.
    pub fn group_with(&self, options: &GroupOptions<'_>) -> Result<Option<Group<'_>>> {
        let backend = options.backend.map(|b| c_text(b, "make a group")).transpose()?;
        let name = options.name.map(|n| c_text(n, "make a group")).transpose()?;
        let ranks: Option<Vec<c_int>> =
            options.ranks.map(|list| list.iter().map(|&r| r as c_int).collect());
        let mut o = options!(GroupOptions, crunrt_group_options_size, crunrt_group_options_init);
        o.backend = backend.as_ref().map_or(ptr::null(), |b| b.as_ptr());
        o.name = name.as_ref().map_or(ptr::null(), |n| n.as_ptr());
        if let Some(list) = &ranks {
            o.ranks = list.as_ptr();
            o.rank_count = list.len();
        }
        o.timeout_ms = options.timeout.map_or(0, milliseconds);
        let mut at = ptr::null_mut();
        // SAFETY: the options, texts and ranks are valid during the call.
        check(unsafe { ffi::crunrt_group_new(self.at, &o, &mut at) })?;
        Ok(if at.is_null() { None } else { Some(Group { at, _runtime: PhantomData }) })
    }

    /// Counts one step. Returns a change if this rank must stop after this step.
    pub fn step(&self) -> Result<Option<Change>> {
        let mut c = options!(Change, crunrt_change_size, crunrt_change_init);
        // SAFETY: `c` is valid during the call.
        if check(unsafe { ffi::crunrt_step(self.at, &mut c) })? == 0 {
            return Ok(None);
        }
        // SAFETY: the library ends the reason with a NUL.
        let reason = unsafe { CStr::from_ptr(c.reason.as_ptr()) };
        Ok(Some(Change {
            left: Duration::from_millis(u64::try_from(c.left_ms).unwrap_or(0)),
            step: c.step,
            reason: reason.to_string_lossy().into_owned(),
        }))
    }

    /// Sets whether crun keeps this process alive when another worker fails. A process that is kept
    /// gets an error from an operation or a step, and then calls rejoin().
    pub fn can_rejoin(&self, yes: bool) -> Result<()> {
        // SAFETY: `at` is valid until drop().
        check(unsafe { ffi::crunrt_can_rejoin(self.at, c_int::from(yes)) }).map(drop)
    }

    /// Waits for the next round and takes this process into it. All groups must be dropped before;
    /// the compiler checks that, because a group borrows the runtime.
    pub fn rejoin(&mut self) -> Result<()> {
        let options =
            options!(RejoinOptions, crunrt_rejoin_options_size, crunrt_rejoin_options_init);
        // SAFETY: `at` is valid until drop(), and no group or store borrows it.
        check(unsafe { ffi::crunrt_rejoin(self.at, &options) }).map(drop)
    }

    /// Reports that this worker has saved, after step() has returned a change.
    pub fn change_done(&self) -> Result<()> {
        // SAFETY: `at` is valid until drop().
        check(unsafe { ffi::crunrt_change_done(self.at) }).map(drop)
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        // SAFETY: `at` is valid, and no group borrows the runtime any more.
        unsafe { ffi::crunrt_destroy(self.at) }
    }
}

/// Writes the error file that crun shows in its failure report.
pub fn report_error(message: &str) {
    if let Ok(text) = CString::new(message) {
        // SAFETY: the text is valid during the call.
        unsafe { ffi::crunrt_report_error(text.as_ptr(), ptr::null()) };
    }
}

fn milliseconds(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// Small values that all processes of the job share.
pub struct Store<'a> {
    at: *mut ffi::Store,
    _runtime: PhantomData<&'a Runtime>,
}

impl Store<'_> {
    /// Sets a key.
    pub fn set(&self, key: &str, value: &[u8]) -> Result<()> {
        let key = c_text(key, "set a key")?;
        let at = value.as_ptr().cast::<c_void>();
        // SAFETY: key and value are valid during the call.
        check(unsafe { ffi::crunrt_store_set(self.at, key.as_ptr(), at, value.len()) }).map(drop)
    }

    /// Waits until the key exists, and returns its value.
    pub fn get(&self, key: &str, timeout: Duration) -> Result<Vec<u8>> {
        let key = c_text(key, "get a key")?;
        let (mut value, mut len) = (ptr::null_mut(), 0_usize);
        // SAFETY: the library allocates the value, which is copied and freed below.
        check(unsafe {
            let ms = milliseconds(timeout);
            ffi::crunrt_store_get(self.at, key.as_ptr(), ms, &mut value, &mut len)
        })?;
        // SAFETY: `value` has `len` bytes.
        let copy = unsafe { std::slice::from_raw_parts(value.cast::<u8>(), len) }.to_vec();
        // SAFETY: the library has allocated the value.
        unsafe { ffi::crunrt_free(value) };
        Ok(copy)
    }

    /// Adds to the number that the key holds, and returns the sum.
    pub fn add(&self, key: &str, delta: i64) -> Result<i64> {
        let key = c_text(key, "add to a key")?;
        let mut total = 0;
        // SAFETY: the key is valid during the call.
        check(unsafe { ffi::crunrt_store_add(self.at, key.as_ptr(), delta, &mut total) })?;
        Ok(total)
    }
}

/// How to make a group; see Runtime::group_with().
#[derive(Debug, Default, Clone)]
pub struct GroupOptions<'a> {
    /// "gloo" or "mpi"; None means CRUNRT_BACKEND, or gloo.
    pub backend: Option<&'a str>,
    /// The name in messages.
    pub name: Option<&'a str>,
    /// The ranks of the job that are in the group, in the group's order; None means all.
    pub ranks: Option<&'a [usize]>,
    /// The timeout of every operation; None means ten minutes.
    pub timeout: Option<Duration>,
}

/// A set of ranks that communicate. After a failure it is broken, and can only be dropped.
pub struct Group<'a> {
    at: *mut ffi::Group,
    _runtime: PhantomData<&'a Runtime>,
}

const BROADCAST: c_int = 2;
const ALL_GATHER: c_int = 3;
const GATHER: c_int = 4;
const SCATTER: c_int = 5;
const REDUCE_SCATTER: c_int = 6;
const ALL_TO_ALL: c_int = 7;
const BARRIER: c_int = 9;
const SEND: c_int = 10;
const RECV: c_int = 11;

fn op_of<T: Number>(kind: c_int, count: usize) -> ffi::Op {
    let mut op = options!(Op, crunrt_op_size, crunrt_op_init);
    op.kind = kind;
    op.dtype = T::DTYPE;
    op.count = count;
    op
}

fn must_have(what: &str, have: usize, want: usize) -> Result<()> {
    if have == want {
        return Ok(());
    }
    Err(refuse(format!("{what}: the buffer has {have} elements instead of {want}")))
}

/// One message of Group::batch().
pub enum Message<'b, T: Number> {
    /// Sends the slice to a rank.
    Send(&'b [T], usize, u32),
    /// Receives the slice from a rank.
    Receive(&'b mut [T], usize, u32),
}

impl Group<'_> {
    /// This process's rank in the group.
    pub fn rank(&self) -> usize {
        // SAFETY: `at` is valid until drop().
        unsafe { ffi::crunrt_group_rank(self.at) as usize }
    }

    /// The number of ranks in the group.
    pub fn size(&self) -> usize {
        // SAFETY: `at` is valid until drop().
        unsafe { ffi::crunrt_group_size(self.at) as usize }
    }

    /// Runs an operation whose buffers the caller has checked.
    fn run(&mut self, op: &ffi::Op) -> Result<()> {
        // SAFETY: the buffers of `op` are slices that the caller borrows until this call returns,
        // and they are as long as the operation needs them.
        check(unsafe { ffi::crunrt_group_run(self.at, op) }).map(drop)
    }

    /// Replaces the numbers, on every rank, by the reduction over all ranks.
    pub fn all_reduce<T: Number>(&mut self, data: &mut [T], reduce: Reduce) -> Result<()> {
        let mut op = op_of::<T>(0, data.len());
        op.reduce = reduce as c_int;
        op.recv = data.as_mut_ptr().cast();
        op.send = op.recv;
        self.run(&op)
    }

    /// Replaces the numbers on `root` by the reduction over all ranks.
    pub fn reduce<T: Number>(&mut self, data: &mut [T], reduce: Reduce, root: usize) -> Result<()> {
        let mut op = op_of::<T>(1, data.len());
        op.reduce = reduce as c_int;
        op.root = root as c_int;
        op.recv = data.as_mut_ptr().cast();
        op.send = op.recv;
        self.run(&op)
    }

    /// Copies the numbers of `root` to all ranks.
    pub fn broadcast<T: Number>(&mut self, data: &mut [T], root: usize) -> Result<()> {
        let mut op = op_of::<T>(BROADCAST, data.len());
        op.root = root as c_int;
        op.recv = data.as_mut_ptr().cast();
        self.run(&op)
    }

    /// Returns the numbers of all ranks, in rank order.
    pub fn all_gather<T: Number>(&mut self, own: &[T]) -> Result<Vec<T>> {
        let mut all = vec![T::default(); own.len() * self.size()];
        let mut op = op_of::<T>(ALL_GATHER, own.len());
        op.send = own.as_ptr().cast();
        op.recv = all.as_mut_ptr().cast();
        self.run(&op)?;
        Ok(all)
    }

    /// Returns, on `root`, the numbers of all ranks in rank order; None on the other ranks.
    pub fn gather<T: Number>(&mut self, own: &[T], root: usize) -> Result<Option<Vec<T>>> {
        let is_root = self.rank() == root;
        let mut all = vec![T::default(); if is_root { own.len() * self.size() } else { 0 }];
        let mut op = op_of::<T>(GATHER, own.len());
        op.root = root as c_int;
        op.send = own.as_ptr().cast();
        op.recv = all.as_mut_ptr().cast();
        self.run(&op)?;
        Ok(is_root.then_some(all))
    }

    /// Fills `part` with this rank's part of the numbers of `root`, which gives them as Some.
    pub fn scatter<T: Number>(
        &mut self, all: Option<&[T]>, part: &mut [T], root: usize,
    ) -> Result<()> {
        let mut op = op_of::<T>(SCATTER, part.len());
        if self.rank() == root {
            let all = all.ok_or_else(|| refuse("scatter: the root gives no numbers".into()))?;
            must_have("scatter", all.len(), part.len() * self.size())?;
            op.send = all.as_ptr().cast();
        }
        op.root = root as c_int;
        op.recv = part.as_mut_ptr().cast();
        self.run(&op)
    }

    /// Reduces `all` over all ranks, and fills `part` with this rank's part of the result.
    pub fn reduce_scatter<T: Number>(
        &mut self, all: &[T], part: &mut [T], reduce: Reduce,
    ) -> Result<()> {
        must_have("reduce_scatter", all.len(), part.len() * self.size())?;
        let mut op = op_of::<T>(REDUCE_SCATTER, part.len());
        op.reduce = reduce as c_int;
        op.send = all.as_ptr().cast();
        op.recv = part.as_mut_ptr().cast();
        self.run(&op)
    }

    /// Sends part i of `send` to rank i, and receives part i of `recv` from rank i.
    pub fn all_to_all<T: Number>(&mut self, send: &[T], recv: &mut [T]) -> Result<()> {
        must_have("all_to_all", recv.len(), send.len())?;
        let part = send.len() / self.size();
        must_have("all_to_all", send.len(), part * self.size())?;
        let mut op = op_of::<T>(ALL_TO_ALL, part);
        op.send = send.as_ptr().cast();
        op.recv = recv.as_mut_ptr().cast();
        self.run(&op)
    }

    /// Waits until all ranks have called this.
    pub fn barrier(&mut self) -> Result<()> {
        self.run(&op_of::<u8>(BARRIER, 0))
    }

    /// A barrier whose error names the ranks that did not come.
    pub fn monitored_barrier(&mut self, timeout: Duration) -> Result<()> {
        // SAFETY: `at` is valid until drop().
        check(unsafe { ffi::crunrt_group_monitored_barrier(self.at, milliseconds(timeout)) })
            .map(drop)
    }

    /// Sends numbers to a rank.
    pub fn send<T: Number>(&mut self, data: &[T], peer: usize, tag: u32) -> Result<()> {
        self.run(&message(&Message::Send(data, peer, tag)))
    }

    /// Receives numbers from a rank.
    pub fn recv<T: Number>(&mut self, data: &mut [T], peer: usize, tag: u32) -> Result<()> {
        self.run(&message(&Message::Receive(data, peer, tag)))
    }

    /// Runs sends and receives at the same time, so that ranks that exchange data do not wait for
    /// each other.
    pub fn batch<T: Number>(&mut self, messages: &mut [Message<'_, T>]) -> Result<()> {
        let ops: Vec<ffi::Op> = messages.iter().map(message).collect();
        // SAFETY: the slices of the messages are borrowed until this call returns.
        check(unsafe { ffi::crunrt_group_batch(self.at, ops.as_ptr(), ops.len()) }).map(drop)
    }
}

fn message<T: Number>(m: &Message<'_, T>) -> ffi::Op {
    let mut op = match m {
        Message::Send(data, _, _) => op_of::<T>(SEND, data.len()),
        Message::Receive(data, _, _) => op_of::<T>(RECV, data.len()),
    };
    match m {
        Message::Send(data, peer, tag) => {
            (op.send, op.root, op.tag) = (data.as_ptr().cast(), *peer as c_int, *tag);
        }
        Message::Receive(data, peer, tag) => {
            (op.recv, op.root, op.tag) =
                (data.as_ptr().cast_mut().cast(), *peer as c_int, *tag);
        }
    }
    op
}

impl Drop for Group<'_> {
    fn drop(&mut self) {
        // SAFETY: `at` is valid, and this is its last use.
        unsafe { ffi::crunrt_group_destroy(self.at) }
    }
}
