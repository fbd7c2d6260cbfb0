//! Plans by signature: made on first use and kept as long as the session.
//!
//! Nodes never change, so a plan stays valid when the graph grows. A failed plan is not kept, because the graph may
//! have grown by the time the same step comes again.

use super::plan::StepPlan;
use ferroflow_core::{Result, Tensor, bail, ensure};
use ferroflow_runtime::Signature;
use ferroflow_runtime::plan::parse_tensor_name;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, RwLock};

/// A plan that is being made or is done; all clones share the outcome.
type SharedPlan = Shared<BoxFuture<'static, Result<Arc<StepPlan>>>>;

/// The plan for one request, and the mapping between the request's lists and the plan's.
pub(crate) struct Prepared {
    /// The names as the client wrote and ordered them.
    request: Signature,
    /// The plan's names: complete, sorted, without repetitions.
    pub(crate) signature: Signature,
    pub(crate) plan: Arc<StepPlan>,
    /// Positions of the request's feeds in the signature.
    feed_positions: Vec<usize>,
    /// Positions of the request's fetches in the signature.
    fetch_positions: Vec<usize>,
    /// Positions in the request of its fetches without repetitions.
    distinct_fetches: Vec<usize>,
}

impl Prepared {
    /// Prepares a request without a cache.
    pub(crate) async fn new(
        request: Signature,
        build: impl AsyncFnOnce(&Signature) -> Result<Arc<StepPlan>>,
    ) -> Result<Arc<Prepared>> {
        let signature = sort(&request)?;
        let plan = build(&signature).await?;
        Ok(Arc::new(Prepared::map(request, signature, plan)))
    }

    fn map(request: Signature, signature: Signature, plan: Arc<StepPlan>) -> Prepared {
        let positions = |list: &[String], sorted: &[String]| -> Vec<usize> {
            let position = |name: &String| sorted.binary_search(&full_name(name));
            list.iter().map(|name| position(name).expect("sorted names hold every name")).collect()
        };
        let mut seen = HashSet::new();
        let distinct_fetches =
            (0..request.fetches.len()).filter(|&i| seen.insert(&request.fetches[i])).collect();
        Prepared {
            feed_positions: positions(&request.feeds, &signature.feeds),
            fetch_positions: positions(&request.fetches, &signature.fetches),
            distinct_fetches,
            request,
            signature,
            plan,
        }
    }

    /// Returns the number of feeds in the request.
    pub(crate) fn feed_count(&self) -> usize {
        self.feed_positions.len()
    }

    /// Reorders feeds from the request's order to the signature's.
    pub(crate) fn order_feeds(&self, feeds: impl IntoIterator<Item = Tensor>) -> Vec<Tensor> {
        let mut placed: Vec<_> = self.feed_positions.iter().zip(feeds).collect();
        placed.sort_by_key(|(position, _)| **position);
        placed.into_iter().map(|(_, feed)| feed).collect()
    }

    /// Returns the positions of the request's fetches, with repetitions, in the signature.
    pub(crate) fn fetch_positions(&self) -> &[usize] {
        &self.fetch_positions
    }

    /// Returns each fetch of the request once: its name and its position in the signature.
    pub(crate) fn named_fetches(&self) -> impl Iterator<Item = (&String, usize)> {
        self.distinct_fetches.iter().map(|&i| (&self.request.fetches[i], self.fetch_positions[i]))
    }
}

/// The plans of one session.
#[derive(Default)]
pub(crate) struct PlanCache {
    /// Earlier requests by the hash of their names. Every step but the first of its kind is found here.
    prepared: RwLock<HashMap<u64, Vec<Arc<Prepared>>>>,
    /// Plans by sorted names, so that a different order of the same names finds the same plan.
    plans: Mutex<HashMap<Signature, SharedPlan>>,
}

const UNPOISONED: &str = "no panic while plans are locked";

impl PlanCache {
    /// Returns the prepared request with these names.
    pub(crate) fn get<'a>(
        &self,
        feeds: impl Iterator<Item = &'a String> + Clone,
        fetches: &[String],
        targets: &[String],
    ) -> Option<Arc<Prepared>> {
        let hash = hash(feeds.clone(), fetches, targets);
        let same = |request: &Signature| {
            request.fetches == fetches && request.targets == targets && request.feeds.iter().eq(feeds.clone())
        };
        let prepared = self.prepared.read().expect(UNPOISONED);
        prepared.get(&hash)?.iter().find(|candidate| same(&candidate.request)).cloned()
    }

    /// Prepares a request; `build` makes the plan unless it is made or being made already.
    pub(crate) async fn prepare(
        &self,
        request: Signature,
        build: impl FnOnce(Signature) -> BoxFuture<'static, Result<Arc<StepPlan>>>,
    ) -> Result<Arc<Prepared>> {
        let signature = sort(&request)?;
        let plan = {
            let mut plans = self.plans.lock().expect(UNPOISONED);
            let make = || build(signature.clone()).shared();
            plans.entry(signature.clone()).or_insert_with(make).clone()
        };
        let plan = match plan.clone().await {
            Ok(plan) => plan,
            Err(error) => {
                let mut plans = self.plans.lock().expect(UNPOISONED);
                if plans.get(&signature).is_some_and(|present| present.ptr_eq(&plan)) {
                    plans.remove(&signature);
                }
                return Err(error);
            }
        };
        let prepared = Arc::new(Prepared::map(request, signature, plan));
        let Signature { feeds, fetches, targets } = &prepared.request;
        let hash = hash(feeds.iter(), fetches, targets);
        self.prepared.write().expect(UNPOISONED).entry(hash).or_default().push(prepared.clone());
        Ok(prepared)
    }
}

/// Completes a tensor name: `m` is short for `m:0`, which handwritten requests use.
pub(crate) fn full_name(name: &str) -> String {
    match parse_tensor_name(name) {
        ("", _) => name.to_owned(),
        (node, index) => format!("{node}:{index}"),
    }
}

fn hash<'a>(feeds: impl Iterator<Item = &'a String>, fetches: &[String], targets: &[String]) -> u64 {
    let mut hasher = DefaultHasher::new();
    feeds.for_each(|name| name.hash(&mut hasher));
    hasher.write_u8(0);
    fetches.hash(&mut hasher);
    targets.hash(&mut hasher);
    hasher.finish()
}

/// Returns the plan's names: complete, sorted, without repetitions. Refuses contradictory requests.
fn sort(request: &Signature) -> Result<Signature> {
    fn tidy(mut names: Vec<String>) -> Vec<String> {
        names.sort();
        names.dedup();
        names
    }
    let full = |names: &[String]| -> Vec<String> { names.iter().map(|name| full_name(name)).collect() };
    let signature = Signature {
        feeds: tidy(full(&request.feeds)),
        fetches: tidy(full(&request.fetches)),
        targets: tidy(request.targets.clone()),
    };
    ensure!(
        !signature.fetches.is_empty() || !signature.targets.is_empty(),
        InvalidArgument,
        "Must specify at least one target to fetch or execute."
    );
    if signature.feeds.len() < request.feeds.len() {
        let mut seen = HashSet::new();
        let repeated = full(&request.feeds).into_iter().find(|name| !seen.insert(name.clone()));
        bail!(InvalidArgument, "Endpoint \"{}\" fed more than once.", repeated.unwrap_or_default());
    }
    for fetch in &signature.fetches {
        let fed = signature.feeds.binary_search(fetch).is_ok();
        ensure!(!fed, InvalidArgument, "{fetch} is both fed and fetched.");
    }
    Ok(signature)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(feeds: &[&str], fetches: &[&str], targets: &[&str]) -> Signature {
        let own = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect();
        Signature { feeds: own(feeds), fetches: own(fetches), targets: own(targets) }
    }

    #[test]
    fn names_are_completed_sorted_and_kept_once() {
        let sorted = sort(&names(&["b", "a:1"], &["z:0", "y", "z"], &["t", "s", "t"])).unwrap();
        assert_eq!(sorted, names(&["a:1", "b:0"], &["y:0", "z:0"], &["s", "t"]));
    }

    #[test]
    fn requests_that_mean_nothing_are_refused_in_stock_words() {
        let message = |names| sort(&names).unwrap_err().message().to_owned();
        assert_eq!(message(names(&["p:0", "p"], &["c:0"], &[])), "Endpoint \"p:0\" fed more than once.");
        assert_eq!(message(names(&["c:0"], &["c:0"], &[])), "c:0 is both fed and fetched.");
        let nothing = "Must specify at least one target to fetch or execute.";
        assert_eq!(message(names(&["c:0"], &[], &[])), nothing);
    }
}
