//! What an exchange holds of the configuration that it began with.
//!
//! It pins the core's snapshot, which costs no atomic operation. When another snapshot takes force
//! the exchanges that still go on are given plans of their own, so that a tunnel or a long download
//! never keeps a whole configuration alive (docs/decisions/0007).

use std::cell::{Cell, Ref, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use super::Pinned;
use crate::filter::FilterChain;
use crate::limits::EXCHANGES_KEPT;
use crate::route::{Action, RoutePlan};
use crate::upstream::{Upstream, UpstreamId};

/// A place for the plans of one exchange, known to its core.
#[derive(Debug, Default)]
pub struct Held(RefCell<Plans>);

/// The plans of an exchange.
#[derive(Debug, Default)]
pub enum Plans {
    /// No route has been found.
    #[default]
    None,
    /// They stand in the snapshot, at this place.
    Pinned(Rc<Pinned>, usize),
    /// They are all that is left of a snapshot that is no longer in force; with the upstreams that
    /// the route may still choose, which are perhaps gone.
    Own(Arc<RoutePlan>, Arc<FilterChain>, u64, Vec<Rc<Upstream>>),
}

impl Plans {
    /// The route, if one was found.
    #[inline]
    pub fn route(&self) -> Option<&RoutePlan> {
        match self {
            Plans::None => None,
            Plans::Pinned(snapshot, index) => Some(&snapshot.plans[*index]),
            Plans::Own(route, ..) => Some(route),
        }
    }

    /// The filters of the route, if one was found.
    #[inline]
    pub fn chain(&self) -> Option<&FilterChain> {
        match self {
            Plans::None => None,
            Plans::Pinned(snapshot, index) => Some(&snapshot.chains[*index]),
            Plans::Own(_, chain, ..) => Some(chain),
        }
    }

    /// Version of the configuration that they come from.
    pub fn version(&self) -> Option<u64> {
        match self {
            Plans::None => None,
            Plans::Pinned(snapshot, _) => Some(snapshot.version),
            Plans::Own(_, _, version, _) => Some(*version),
        }
    }

    /// An upstream of the route as it was kept when another snapshot took force.
    pub fn upstream(&self, id: UpstreamId) -> Option<&Rc<Upstream>> {
        match self {
            Plans::None | Plans::Pinned(..) => None,
            Plans::Own(.., upstreams) => upstreams.iter().find(|upstream| upstream.id == id),
        }
    }
}

impl Held {
    /// The plans; not to be kept over an await.
    #[inline]
    pub fn plans(&self) -> Ref<'_, Plans> {
        self.0.borrow()
    }

    /// Holds the route at `index` of a snapshot.
    #[inline]
    pub fn pin(&self, snapshot: Rc<Pinned>, index: usize) {
        self.0.replace(Plans::Pinned(snapshot, index));
    }

    /// Holds nothing any more.
    #[inline]
    pub fn clear(&self) {
        self.0.replace(Plans::None);
    }

    fn unpin(&self, upstreams: &Upstreams<'_>) {
        let plans = &mut *self.0.borrow_mut();
        if let Plans::Pinned(snapshot, index) = plans {
            let (route, chain) = (&snapshot.plans[*index], &snapshot.chains[*index]);
            let targets = match &route.action {
                Action::Forward(targets) => targets.all(),
                Action::Redirect(_) | Action::Respond(_) => &[],
            };
            let kept = targets.iter().filter_map(|target| upstreams(target.upstream)).collect();
            *plans = Plans::Own(route.clone(), chain.clone(), snapshot.version, kept);
        }
    }
}

/// The upstreams of the snapshot that goes out of force.
type Upstreams<'a> = dyn Fn(UpstreamId) -> Option<Rc<Upstream>> + 'a;

/// Every [`Held`] of a core.
#[derive(Debug, Default)]
pub struct Holders {
    places: RefCell<Vec<Weak<Held>>>,
    /// Length at which those that have gone are looked for.
    prune_at: Cell<usize>,
}

impl Holders {
    /// A new place for plans.
    pub fn place(&self) -> Rc<Held> {
        let held = Rc::new(Held::default());
        let places = &mut *self.places.borrow_mut();
        if places.len() >= self.prune_at.get() {
            places.retain(|place| place.strong_count() > 0);
            self.prune_at.set((2 * places.len()).max(EXCHANGES_KEPT));
        }
        places.push(Rc::downgrade(&held));
        held
    }

    /// Lets every exchange go on without its snapshot, whose `upstreams` are looked up here.
    pub fn unpin_all(&self, upstreams: &Upstreams<'_>) {
        self.places.borrow_mut().retain(|held| match held.upgrade() {
            Some(held) => {
                held.unpin(upstreams);
                true
            }
            None => false,
        });
    }
}
