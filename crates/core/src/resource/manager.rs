//! Who keeps resources: containers of (type, name) → resource, one manager per device.

use super::ResourceHandle;
use crate::{Result, Status, status};
use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{Arc, RwLock};

/// State kept under a name: a variable, a queue, a table.
pub trait Resource: Any + Send + Sync {
    /// The type's name on the wire and in error texts.
    fn type_name(&self) -> &'static str;

    /// Releases every waiter; called before the container that holds the resource is cleared.
    fn cancel_waiters(&self) {}
}

type Key = (TypeId, Box<str>);
type Container = HashMap<Key, Arc<dyn Resource>>;

/// Resources by container, type and name.
pub struct ResourceManager {
    default_container: String,
    /// Guards lookups and creation; resources guard themselves.
    containers: RwLock<HashMap<Box<str>, Container>>,
}

const UNPOISONED: &str = "no panic while resources are locked";

impl ResourceManager {
    /// An empty manager whose default container has this name (stock uses the job's name).
    pub fn new(default_container: &str) -> Arc<ResourceManager> {
        Arc::new(ResourceManager {
            default_container: default_container.to_owned(),
            containers: RwLock::default(),
        })
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
        let containers = self.containers.read().expect(UNPOISONED);
        let Some(entries) = containers.get(container) else {
            return Err(status!(
                NotFound,
                "Container {container} does not exist. (Could not find resource: {container}/{name})"
            ));
        };
        match entries.get(&key::<R>(name)) {
            Some(found) => Ok(downcast(found.clone())),
            None => Err(missing::<R>(container, name)),
        }
    }

    /// Finds a resource or makes it; `make` runs with the manager locked, so that it runs once.
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
        let entries = containers.entry(container.into()).or_default();
        if let Some(found) = entries.get(&key::<R>(name)) {
            return Ok(downcast(found.clone()));
        }
        let made = Arc::new(make()?);
        entries.insert(key::<R>(name), made.clone());
        Ok(made)
    }

    /// Adds a resource; an error if the name is taken.
    pub fn create<R: Resource>(&self, container: &str, name: &str, resource: Arc<R>) -> Result<()> {
        let mut containers = self.containers.write().expect(UNPOISONED);
        let entries = containers.entry(container.into()).or_default();
        if entries.contains_key(&key::<R>(name)) {
            let kind = short_type_name::<R>();
            return Err(status!(AlreadyExists, "Resource {container}/{name}/{kind} already exists."));
        }
        entries.insert(key::<R>(name), resource);
        Ok(())
    }

    /// Removes a resource; whoever holds it keeps it alive.
    pub fn delete<R: Resource>(&self, container: &str, name: &str) -> Result<()> {
        let mut containers = self.containers.write().expect(UNPOISONED);
        let removed = containers.get_mut(container).and_then(|entries| entries.remove(&key::<R>(name)));
        removed.map(|_| ()).ok_or_else(|| missing::<R>(container, name))
    }

    /// Removes the resource that a handle names, whatever its type. What a handle owns ends with the handle.
    pub fn delete_named(&self, handle: &ResourceHandle) -> Result<()> {
        if handle.owned_resource().is_some() {
            return Ok(());
        }
        let (container, name) = (handle.container(), handle.name());
        let mut containers = self.containers.write().expect(UNPOISONED);
        let found = containers.get_mut(container).and_then(|entries| {
            let named = |(key, resource): (&Key, &Arc<dyn Resource>)| {
                (&*key.1 == name && resource.type_name() == handle.type_name()).then(|| key.clone())
            };
            let key = entries.iter().find_map(named)?;
            entries.remove(&key)
        });
        match found {
            Some(_) => Ok(()),
            None => Err(status!(NotFound, "Resource {container}/{name}/<unknown> does not exist.")),
        }
    }

    /// The resource that a handle names or owns.
    pub fn resolve<R: Resource>(&self, handle: &ResourceHandle) -> Result<Arc<R>> {
        let Some(owned) = handle.owned_resource() else {
            return self.lookup(handle.container(), handle.name());
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

    /// Empties a container after releasing everybody who waits in it.
    pub fn clear(&self, container: &str) {
        let removed = self.containers.write().expect(UNPOISONED).remove(container);
        removed.into_iter().flat_map(HashMap::into_values).for_each(|resource| resource.cancel_waiters());
    }

    /// Empties every container.
    pub fn clear_all(&self) {
        let removed = std::mem::take(&mut *self.containers.write().expect(UNPOISONED));
        let resources = removed.into_values().flat_map(HashMap::into_values);
        resources.for_each(|resource| resource.cancel_waiters());
    }

    /// The number of resources in all containers.
    pub fn len(&self) -> usize {
        self.containers.read().expect(UNPOISONED).values().map(HashMap::len).sum()
    }

    /// Whether no resource exists.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn key<R: Resource>(name: &str) -> Key {
    (TypeId::of::<R>(), name.into())
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
}
