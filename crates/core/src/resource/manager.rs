//! The resource manager: containers that map a type and a name to a resource. There is one manager per device.

use super::ResourceHandle;
use crate::{Result, Status, status};
use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock, Weak};

/// State kept under a name: a variable, a queue, a table.
pub trait Resource: Any + Send + Sync {
    /// The type's name on the wire and in messages.
    fn type_name(&self) -> &'static str;

    /// Wakes all waiters; called when the container that holds the resource is cleared.
    fn cancel_waiters(&self) {}
}

type Container = HashMap<TypeId, HashMap<Box<str>, Arc<dyn Resource>>>;

/// Resources by container, type and name.
pub struct ResourceManager {
    default_container: String,
    /// Guards lookups and creation; resources guard themselves.
    containers: RwLock<HashMap<Box<str>, Container>>,
    /// The number of removals so far; changes only while `containers` is locked for writing.
    removals: Arc<AtomicU64>,
    /// The next number for [`ResourceManager::unique_number`].
    numbers: AtomicU64,
}

/// The result of a lookup, valid until its manager removes a resource: steps look up the same resources again and
/// again.
#[derive(Default)]
pub struct CachedLookup(RwLock<Option<Found>>);

struct Found {
    /// The manager's count of removals, and its value at the lookup.
    removals: Arc<AtomicU64>,
    seen: u64,
    resource: Weak<dyn Resource>,
}

impl CachedLookup {
    fn get<R: Resource>(&self, removals: &Arc<AtomicU64>) -> Option<Arc<R>> {
        let guard = self.0.read().expect(UNPOISONED);
        let found = guard.as_ref()?;
        let good = Arc::ptr_eq(&found.removals, removals) && removals.load(Ordering::Acquire) == found.seen;
        if !good {
            return None;
        }
        let any: Arc<dyn Any + Send + Sync> = found.resource.upgrade()?;
        any.downcast().ok()
    }
}

const UNPOISONED: &str = "no panic while resources are locked";

impl ResourceManager {
    /// An empty manager whose default container has this name (in stock, the job's name).
    pub fn new(default_container: &str) -> Arc<ResourceManager> {
        Arc::new(ResourceManager {
            default_container: default_container.to_owned(),
            containers: RwLock::default(),
            removals: Arc::default(),
            numbers: AtomicU64::new(0),
        })
    }

    /// A number that is unique within this manager, for telling apart resources of the same name.
    pub fn unique_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// The container used when none is named.
    pub fn default_container(&self) -> &str {
        &self.default_container
    }

    /// `container`, or the default one if it is empty.
    pub fn container_or_default<'a>(&'a self, container: &'a str) -> &'a str {
        if container.is_empty() { &self.default_container } else { container }
    }

    /// Finds a resource.
    pub fn lookup<R: Resource>(&self, container: &str, name: &str) -> Result<Arc<R>> {
        self.find::<R>(container, name).map(|(found, _)| downcast(found))
    }

    /// Finds a resource that was probably looked up before.
    pub fn lookup_cached<R: Resource>(
        &self,
        cached: &CachedLookup,
        container: &str,
        name: &str,
    ) -> Result<Arc<R>> {
        if let Some(found) = cached.get(&self.removals) {
            return Ok(found);
        }
        let (resource, seen) = self.find::<R>(container, name)?;
        let found = Found { removals: self.removals.clone(), seen, resource: Arc::downgrade(&resource) };
        *cached.0.write().expect(UNPOISONED) = Some(found);
        Ok(downcast(resource))
    }

    /// Finds a resource; also returns the count of removals at a time when it existed.
    fn find<R: Resource>(&self, container: &str, name: &str) -> Result<(Arc<dyn Resource>, u64)> {
        let containers = self.containers.read().expect(UNPOISONED);
        let Some(entries) = containers.get(container) else {
            return Err(status!(
                NotFound,
                "Container {container} does not exist. (Could not find resource: {container}/{name})"
            ));
        };
        match entries.get(&TypeId::of::<R>()).and_then(|named| named.get(name)) {
            Some(found) => Ok((found.clone(), self.removals.load(Ordering::Relaxed))),
            None => Err(missing::<R>(container, name)),
        }
    }

    /// Finds a resource or creates it. `make` runs with the manager locked, so it runs once.
    pub fn lookup_or_create<R: Resource>(
        &self,
        container: &str,
        name: &str,
        make: impl FnOnce() -> Result<R>,
    ) -> Result<Arc<R>> {
        if let Ok(found) = self.lookup(container, name) {
            return Ok(found);
        }
        let mut containers = self.containers.write().expect(UNPOISONED);
        let named = containers.entry(container.into()).or_default().entry(TypeId::of::<R>()).or_default();
        if let Some(found) = named.get(name) {
            return Ok(downcast(found.clone()));
        }
        let made = Arc::new(make()?);
        named.insert(name.into(), made.clone());
        Ok(made)
    }

    /// Adds a resource; an error if the name is taken.
    pub fn create<R: Resource>(&self, container: &str, name: &str, resource: Arc<R>) -> Result<()> {
        let mut containers = self.containers.write().expect(UNPOISONED);
        let named = containers.entry(container.into()).or_default().entry(TypeId::of::<R>()).or_default();
        if named.contains_key(name) {
            let kind = short_type_name::<R>();
            return Err(status!(AlreadyExists, "Resource {container}/{name}/{kind} already exists."));
        }
        named.insert(name.into(), resource);
        Ok(())
    }

    /// Removes a resource; it lives on while others hold it.
    pub fn delete<R: Resource>(&self, container: &str, name: &str) -> Result<()> {
        let mut containers = self.containers.write().expect(UNPOISONED);
        let named = containers.get_mut(container).and_then(|entries| entries.get_mut(&TypeId::of::<R>()));
        let removed = named.and_then(|named| named.remove(name));
        self.count_removal();
        removed.map(|_| ()).ok_or_else(|| missing::<R>(container, name))
    }

    /// Removes the resource that a handle names, whatever its type. An anonymous resource ends with its handle instead.
    pub fn delete_by_handle(&self, handle: &ResourceHandle) -> Result<()> {
        if handle.owned_resource().is_some() {
            return Ok(());
        }
        let (container, name) = (handle.container(), handle.name());
        let mut containers = self.containers.write().expect(UNPOISONED);
        let is_meant = |resource: &Arc<dyn Resource>| resource.type_name() == handle.type_name();
        let entries = containers.get_mut(container);
        let mut types = entries.into_iter().flat_map(HashMap::values_mut);
        let found =
            types.find(|named| named.get(name).is_some_and(is_meant)).and_then(|named| named.remove(name));
        self.count_removal();
        match found {
            Some(_) => Ok(()),
            None => Err(status!(NotFound, "Resource {container}/{name}/<unknown> does not exist.")),
        }
    }

    /// The resource that a handle names or owns.
    pub fn resolve<R: Resource>(&self, handle: &ResourceHandle) -> Result<Arc<R>> {
        let Some(owned) = handle.owned_resource() else {
            return match handle.cached_lookup() {
                Some(cached) => self.lookup_cached(cached, handle.container(), handle.name()),
                None => self.lookup(handle.container(), handle.name()),
            };
        };
        let any: Arc<dyn Any + Send + Sync> = owned.clone();
        any.downcast::<R>().map_err(|_| {
            status!(
                InvalidArgument,
                "Trying to access resource using the wrong type. Expected {}, got {}",
                short_type_name::<R>(),
                handle.type_name()
            )
        })
    }

    /// Empties a container and wakes all waiters in it.
    pub fn clear(&self, container: &str) {
        let mut containers = self.containers.write().expect(UNPOISONED);
        let removed = containers.remove(container);
        self.count_removal();
        drop(containers);
        removed.into_iter().for_each(cancel_waiters);
    }

    /// Empties every container.
    pub fn clear_all(&self) {
        let mut containers = self.containers.write().expect(UNPOISONED);
        let removed = std::mem::take(&mut *containers);
        self.count_removal();
        drop(containers);
        removed.into_values().for_each(cancel_waiters);
    }

    /// The number of resources in all containers.
    pub fn len(&self) -> usize {
        let containers = self.containers.read().expect(UNPOISONED);
        containers.values().flat_map(HashMap::values).map(HashMap::len).sum()
    }

    /// Returns whether no resource exists.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Counts a removal; the containers must be locked for writing.
    fn count_removal(&self) {
        self.removals.fetch_add(1, Ordering::Release);
    }
}

fn cancel_waiters(container: Container) {
    let resources = container.into_values().flat_map(HashMap::into_values);
    resources.for_each(|resource| resource.cancel_waiters());
}

fn missing<R: Resource>(container: &str, name: &str) -> Status {
    status!(NotFound, "Resource {container}/{name}/{} does not exist.", short_type_name::<R>())
}

fn downcast<R: Resource>(resource: Arc<dyn Resource>) -> Arc<R> {
    let any: Arc<dyn Any + Send + Sync> = resource;
    any.downcast().expect("keys carry the type of their resource")
}

fn short_type_name<R>() -> &'static str {
    std::any::type_name::<R>().rsplit("::").next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Counter(u32);
    impl Resource for Counter {
        fn type_name(&self) -> &'static str {
            "Counter"
        }
    }

    #[test]
    fn resources_are_shared_by_name_and_vanish_with_their_container() {
        let manager = ResourceManager::new("localhost");
        manager.lookup_or_create("c", "x", || Ok(Counter(1))).unwrap();
        assert_eq!(manager.lookup_or_create("c", "x", || Ok(Counter(2))).unwrap().0, 1);
        manager.clear("c");
        assert!(manager.lookup::<Counter>("c", "x").is_err());
    }

    #[test]
    fn cached_lookups_are_invalid_after_a_removal() {
        let manager = ResourceManager::new("localhost");
        let cached = CachedLookup::default();
        let look = || manager.lookup_cached::<Counter>(&cached, "c", "x").map(|found| found.0);
        assert!(look().is_err());
        manager.create("c", "x", Arc::new(Counter(1))).unwrap();
        assert_eq!((look().unwrap(), look().unwrap()), (1, 1));
        let kept = manager.lookup::<Counter>("c", "x").unwrap();
        manager.delete::<Counter>("c", "x").unwrap();
        assert!(look().is_err());
        manager.create("c", "x", Arc::new(Counter(2))).unwrap();
        assert_eq!((look().unwrap(), kept.0), (2, 1));
        let other = ResourceManager::new("localhost");
        assert!(other.lookup_cached::<Counter>(&cached, "c", "x").is_err());
    }
}
