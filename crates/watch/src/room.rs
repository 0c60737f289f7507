//! What is being looked at: the thread that reads run folders, and what it has found, for the page.
//!
//! ```text
//! run folders --the reading thread--> glances, digests, drawn parts --revision--> connections
//! ```
//! The thread reads only while somebody looks: a list asks for glances, an open run for its digest.
//! Its work on a run that is open is paced: it rests two hundred times as long as it has just worked,
//! for the numbers and for the figures, so that a page costs about 1 % of one core however fast a run writes. Only the first reading, which
//! somebody waits for, and what follows a kill, a resume or an end, go as fast as they can.
//!
//! Runs are only read. Locks: each is held for a look or an exchange, never while a file is read.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use scalerl_journal::RunFolder;
use tokio::sync::watch;

use crate::catalog::Catalog;
use crate::follow::Follower;
use crate::glance::{Glance, Plan, Stamp};
use crate::view::Parts;
use crate::view::curve::Curve;

/// Between two looks.
const LOOK: Duration = Duration::from_millis(500);
/// Between two searches for runs.
const SEARCH: Duration = Duration::from_secs(5);
/// After a request for it, a list or a run is read on for so long.
const WANTED: Duration = Duration::from_secs(30);
/// What is not looked at for so long is forgotten.
const FORGOTTEN: Duration = Duration::from_mins(10);
/// Rest for work, of the numbers and of the figures: together at most 1 % of one core.
const REST: u32 = 200;
/// Between two refreshments of the numbers, at least.
const NUMBERS: Duration = Duration::from_secs(1);
/// Bytes of a journal between two looks at what else is wanted.
const BUDGET: u64 = 16 << 20;
/// Runs that are followed at once.
const MOST_FOLLOWED: usize = 32;

/// A run of the catalog.
pub(crate) struct Run {
    pub(crate) slug: String,
    pub(crate) path: PathBuf,
    pub(crate) glance: RwLock<Option<Arc<Glance>>>,
    stamp: Mutex<Option<(Stamp, Plan)>>,
    /// When a client last asked for its page.
    wanted: Mutex<Option<Instant>>,
    pub(crate) parts: RwLock<Option<Arc<Parts>>>,
    /// How often the parts were drawn.
    pub(crate) drawn: AtomicU64,
    followed: Mutex<Option<Followed>>,
}

struct Followed {
    follower: Follower,
    curve: Curve,
    fleet_at: f64,
    is_alive: bool,
    /// Sessions that are on show: one more is a resume, which takes things back.
    sessions: usize,
    /// Something has come since the figures were drawn.
    is_pending: bool,
    /// Not before: the numbers, and the figures.
    next: Instant,
    next_figures: Instant,
}

/// Everything that is known of the runs.
pub struct Room {
    catalog: Mutex<Catalog>,
    runs: RwLock<Arc<BTreeMap<String, Arc<Run>>>>,
    /// Rises with every change that a page may show.
    revision: watch::Sender<u64>,
    /// Of the list.
    listed: AtomicU64,
    list_wanted: Mutex<Option<Instant>>,
    is_over: AtomicBool,
    waker: (Mutex<bool>, Condvar),
    /// Nanoseconds that the thread has worked.
    worked: AtomicU64,
}

fn held<T>(lock: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // What a panic left behind is a look that was not finished; the next one replaces it.
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn read<T: Clone>(lock: &RwLock<T>) -> T {
    lock.read().unwrap_or_else(PoisonError::into_inner).clone()
}

fn write<T>(lock: &RwLock<T>, value: T) {
    *lock.write().unwrap_or_else(PoisonError::into_inner) = value;
}

fn is_recent(at: Option<Instant>, within: Duration) -> bool {
    at.is_some_and(|at| at.elapsed() < within)
}

impl Room {
    /// Of runs and folders of runs.
    pub fn new(roots: &[PathBuf]) -> Arc<Self> {
        let room = Arc::new(Self {
            catalog: Mutex::new(Catalog::new(roots)),
            runs: RwLock::default(),
            revision: watch::channel(0).0,
            listed: AtomicU64::new(0),
            list_wanted: Mutex::new(None),
            is_over: AtomicBool::new(false),
            waker: (Mutex::new(false), Condvar::new()),
            worked: AtomicU64::new(0),
        });
        room.search();
        room
    }

    /// Starts the thread that reads. It ends when the result is dropped.
    pub fn start(self: &Arc<Self>) -> std::io::Result<Reader> {
        let room = self.clone();
        let thread =
            std::thread::Builder::new().name("watch".to_owned()).spawn(move || room.work())?;
        Ok(Reader { room: self.clone(), thread: Some(thread) })
    }

    pub(crate) fn runs(&self) -> Arc<BTreeMap<String, Arc<Run>>> {
        read(&self.runs)
    }

    pub(crate) fn run(&self, slug: &str) -> Option<Arc<Run>> {
        let run = self.runs().get(slug).cloned();
        if run.is_none() {
            // It may have begun since: there when it is asked for again.
            self.want_list();
        }
        run
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    pub(crate) fn list_generation(&self) -> u64 {
        self.listed.load(Ordering::Acquire)
    }

    /// Seconds that the reading thread has worked.
    pub fn worked_s(&self) -> f64 {
        Duration::from_nanos(self.worked.load(Ordering::Relaxed)).as_secs_f64()
    }

    /// Somebody looks at the list.
    pub(crate) fn want_list(&self) {
        *held(&self.list_wanted) = Some(Instant::now());
        self.wake();
    }

    /// Somebody looks at a run.
    pub(crate) fn want(&self, run: &Run) {
        *held(&run.wanted) = Some(Instant::now());
        self.wake();
    }

    fn wake(&self) {
        *held(&self.waker.0) = true;
        self.waker.1.notify_all();
    }

    fn sleep(&self) {
        let guard = held(&self.waker.0);
        let waited = self.waker.1.wait_timeout_while(guard, LOOK, |is_asked| !*is_asked);
        *waited.unwrap_or_else(PoisonError::into_inner).0 = false;
    }

    fn changed(&self) {
        self.revision.send_modify(|revision| *revision += 1);
    }

    fn work(&self) {
        let mut searched = Instant::now();
        // A list is read again when its own pace allows it.
        let mut next_list = Instant::now();
        while !self.is_over.load(Ordering::Acquire) {
            let start = Instant::now();
            let is_list_wanted = is_recent(*held(&self.list_wanted), WANTED);
            if is_list_wanted && searched.elapsed() >= SEARCH {
                searched = Instant::now();
                self.search();
            }
            if is_list_wanted && next_list <= start {
                self.glance_at_all();
                next_list = Instant::now() + (start.elapsed() * REST / 4).clamp(LOOK, SEARCH);
            }
            let is_behind = self.follow_wanted();
            self.worked.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
            if !is_behind {
                self.sleep();
            }
        }
    }

    /// Looks which runs there are.
    fn search(&self) {
        let found = held(&self.catalog).scan();
        let before = self.runs();
        let known = |slug: String, path: PathBuf| {
            let run = before.get(&slug).cloned().unwrap_or_else(|| {
                let slug = slug.clone();
                Arc::new(Run {
                    slug,
                    path,
                    glance: RwLock::default(),
                    stamp: Mutex::default(),
                    wanted: Mutex::default(),
                    parts: RwLock::default(),
                    drawn: AtomicU64::new(0),
                    followed: Mutex::default(),
                })
            });
            (slug, run)
        };
        let runs: BTreeMap<_, _> =
            found.into_iter().map(|(slug, path)| known(slug, path)).collect();
        let is_same = runs.len() == before.len() && runs.keys().eq(before.keys());
        if !is_same {
            write(&self.runs, Arc::new(runs));
            self.listed.fetch_add(1, Ordering::AcqRel);
            self.changed();
        }
    }

    /// Searches for runs and takes a glance at those that have changed.
    pub(crate) fn look_again(&self) {
        self.search();
        self.glance_at_all();
    }

    /// Takes a glance at every run whose files have changed.
    pub(crate) fn glance_at_all(&self) {
        let mut is_new = false;
        for run in self.runs().values() {
            is_new |= run.look();
        }
        if is_new {
            self.listed.fetch_add(1, Ordering::AcqRel);
            self.changed();
        }
    }

    /// Reads on in the runs that are open somewhere. True when there is more to read at once.
    fn follow_wanted(&self) -> bool {
        let mut is_behind = false;
        let mut open = 0;
        for run in self.runs().values() {
            let wanted = *held(&run.wanted);
            if !is_recent(wanted, FORGOTTEN) {
                if wanted.is_some() {
                    *held(&run.wanted) = None;
                    *held(&run.followed) = None;
                    write(&run.parts, None);
                }
                continue;
            }
            open += 1;
            if is_recent(wanted, WANTED) && open <= MOST_FOLLOWED {
                let (is_new, more) = run.follow();
                is_behind |= more;
                if is_new {
                    self.changed();
                }
            }
        }
        is_behind
    }
}

impl Run {
    pub(crate) fn folder(&self) -> Option<RunFolder> {
        RunFolder::open(&self.path).ok()
    }

    /// The last step that counts, as far as it is known: what a resume has taken back lies behind it.
    pub(crate) fn newest_step(&self) -> u64 {
        self.look();
        read(&self.glance).map_or(u64::MAX, |glance| glance.version)
    }

    /// Takes a glance where the files have changed; whether it did.
    pub(crate) fn look(&self) -> bool {
        let Some(folder) = self.folder() else { return false };
        let stamp = Stamp::of(&folder);
        let mut known = held(&self.stamp);
        if known.is_some_and(|(known, _)| known == stamp) {
            return false;
        }
        let plan = known.map_or_else(|| Plan::of(&folder), |(_, plan)| plan);
        let glance = Glance::take(&folder, &stamp, plan);
        *known = Some((stamp, plan));
        write(&self.glance, Some(Arc::new(glance)));
        true
    }

    fn show(&self, parts: Parts) {
        write(&self.parts, Some(Arc::new(parts)));
        self.drawn.fetch_add(1, Ordering::AcqRel);
    }

    /// Reads on and draws; whether there is something new to show, and whether there is more to read.
    fn follow(&self) -> (bool, bool) {
        let mut followed = held(&self.followed);
        let Some(folder) = self.folder() else { return (false, false) };
        let one = followed.get_or_insert_with(|| Followed {
            follower: Follower::new(&folder),
            curve: Curve::default(),
            fleet_at: 0.0,
            is_alive: false,
            sessions: 0,
            is_pending: true,
            next: Instant::now(),
            next_figures: Instant::now(),
        });
        let start = Instant::now();
        if start < one.next {
            return (false, false);
        }
        let before = one.follower.generation();
        let is_done = match one.follower.advance(BUDGET) {
            Ok(is_done) => is_done,
            Err(error) => {
                one.next = start + SEARCH;
                self.show(Parts::unreadable(&error.to_string()));
                return (true, false);
            }
        };
        let Some(digest) = one.follower.digest() else {
            self.show(Parts::reading(one.follower.progress()));
            return (true, true);
        };
        if !is_done {
            // It is read anew after a resume; what was known stays on show.
            return (false, true);
        }
        let fleet = scalerl_journal::FleetTable::read(&self.path);
        let fleet_at = fleet.as_ref().map_or(0.0, |fleet| fleet.at);
        let is_alive = folder.is_held().unwrap_or(false);
        let sessions = digest.sessions.count();
        let shown = read(&self.parts).filter(|parts| !parts.is_unfinished);
        // A run that ends, is killed or resumed is drawn at once: that is rare.
        let is_turn = is_alive != one.is_alive || sessions != one.sessions || shown.is_none();
        let is_new = is_turn || before != one.follower.generation() || fleet_at > one.fleet_at;
        one.is_pending |= is_new;
        (one.fleet_at, one.is_alive, one.sessions) = (fleet_at, is_alive, sessions);
        let is_drawn = one.is_pending && (is_turn || start >= one.next_figures);
        if !is_new && !is_drawn {
            return (false, false);
        }
        let plan = held(&self.stamp).map_or_else(|| Plan::of(&folder), |(_, plan)| plan);
        let subject = crate::view::Subject {
            name: &folder.name(),
            digest: &digest,
            plan,
            is_alive,
            fleet: fleet.as_ref(),
            damaged: one.follower.damaged(),
        };
        if let Some(parts) = shown.filter(|_| !is_drawn) {
            self.show(parts.with_numbers(&subject));
        } else {
            self.show(Parts::draw(&subject, &mut one.curve));
            one.is_pending = false;
            one.next_figures = Instant::now() + start.elapsed() * REST;
        }
        if !is_drawn {
            one.next = Instant::now() + (start.elapsed() * REST).max(NUMBERS);
        }
        (true, false)
    }
}

/// A glance at every run of some folders, once.
pub fn glances(folders: &[PathBuf]) -> Vec<(String, Arc<Glance>)> {
    let room = Room::new(folders);
    room.glance_at_all();
    let runs = room.runs();
    runs.values().filter_map(|run| Some((run.slug.clone(), read(&run.glance)?))).collect()
}

/// The thread that reads. Dropping it ends the thread.
pub struct Reader {
    room: Arc<Room>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.room.is_over.store(true, Ordering::Release);
        self.room.wake();
        if let Some(thread) = self.thread.take() {
            // A panic in it has been printed.
            let _ = thread.join();
        }
    }
}
