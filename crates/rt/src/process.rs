//! A process's one thread and the signals that end it.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::rc::Rc;
use std::sync::OnceLock;

use tokio::signal::unix::{SignalKind, signal};

/// Runs `main` and everything it spawns by [`tokio::task::spawn_local`] on this thread.
///
/// # Errors
/// When the system denies the event queue.
pub fn run_local<T>(main: impl Future<Output = T>) -> io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .on_thread_park(|| {
            let last = BEFORE_SLEEP.with_borrow(Clone::clone);
            if let Some(last) = last {
                last();
            }
        })
        .build_local(tokio::runtime::LocalOptions::default())?;
    Ok(runtime.block_on(main))
}

thread_local! {
    static BEFORE_SLEEP: RefCell<Option<Rc<dyn Fn()>>> = const { RefCell::new(None) };
}

/// From now on `last` is called whenever this thread has nothing to do, before it waits for
/// events: for what is best done for many events at once. While there is always something to
/// do it is not called.
pub fn before_sleep(last: impl Fn() + 'static) {
    BEFORE_SLEEP.set(Some(Rc::new(last)));
}

/// Which signal asks the process to do something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// SIGINT or SIGTERM: end in order.
    Terminate,
    /// SIGHUP: open log files anew.
    Reopen,
}

static WHEN_HUNG_UP: OnceLock<fn()> = OnceLock::new();

/// From now on `call` is called at each SIGHUP that [`stop_signal`] hears of. The first one told
/// counts.
pub fn when_hung_up(call: fn()) {
    WHEN_HUNG_UP.set(call).ok();
}

/// Waits for the next of SIGINT, SIGTERM and SIGHUP; none of them kills any more once
/// this was called.
///
/// # Errors
/// When the system denies a handler.
pub async fn stop_signal() -> io::Result<Stop> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    Ok(tokio::select! {
        _ = interrupt.recv() => Stop::Terminate,
        _ = terminate.recv() => Stop::Terminate,
        _ = hangup.recv() => {
            if let Some(call) = WHEN_HUNG_UP.get() {
                call();
            }
            Stop::Reopen
        }
    })
}

/// Waits for SIGINT or SIGTERM. SIGHUP does what [`when_hung_up`] was told, and no more.
///
/// # Errors
/// As [`stop_signal`].
pub async fn told_to_stop() -> io::Result<()> {
    while stop_signal().await? == Stop::Reopen {}
    Ok(())
}

/// Allows this process as many open files as its hard limit does; returns how many that are.
pub fn raise_open_files() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let old = getrlimit(Resource::Nofile);
    let new = Rlimit { current: old.maximum, maximum: old.maximum };
    let now = if setrlimit(Resource::Nofile, new).is_ok() { new.current } else { old.current };
    now.unwrap_or(u64::MAX)
}
