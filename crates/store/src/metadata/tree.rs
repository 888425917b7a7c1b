//! The tree as it is, opened once for all who read it until it changes. Beginning to read and opening
//! a table cost more than the look-up that they are for.

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLockReadGuard};

use redb::{Database, Key, ReadOnlyTable, ReadTransaction, ReadableDatabase, TableDefinition};

use super::TreeError;
use super::record::{ExtentKey, ObjectKey};
use super::tables::{EXTENTS, OBJECTS, SMALL, SUMS};

type Opened<K> = OnceLock<ReadOnlyTable<K, &'static [u8]>>;
type Found<'t, K> = Result<&'t ReadOnlyTable<K, &'static [u8]>, TreeError>;

/// One state of the tree, with those of its tables that were needed.
pub(super) struct Tree {
    read: ReadTransaction,
    objects: Opened<&'static ObjectKey>,
    small: Opened<&'static ObjectKey>,
    extents: Opened<&'static ExtentKey>,
    sums: Opened<u64>,
}

impl Tree {
    fn open(database: &Database) -> Result<Tree, TreeError> {
        Ok(Tree {
            read: database.begin_read()?,
            objects: OnceLock::new(),
            small: OnceLock::new(),
            extents: OnceLock::new(),
            sums: OnceLock::new(),
        })
    }

    fn table<'t, K: Key>(
        &'t self,
        opened: &'t Opened<K>,
        definition: TableDefinition<'static, K, &'static [u8]>,
    ) -> Found<'t, K> {
        match opened.get() {
            Some(table) => Ok(table),
            None => {
                let table = self.read.open_table(definition)?;
                // Where two open it at once, both have the same.
                Ok(opened.get_or_init(|| table))
            }
        }
    }

    pub(super) fn objects(&self) -> Found<'_, &'static ObjectKey> {
        self.table(&self.objects, OBJECTS)
    }

    pub(super) fn small(&self) -> Found<'_, &'static ObjectKey> {
        self.table(&self.small, SMALL)
    }

    pub(super) fn extents(&self) -> Found<'_, &'static ExtentKey> {
        self.table(&self.extents, EXTENTS)
    }

    pub(super) fn sums(&self) -> Found<'_, u64> {
        self.table(&self.sums, SUMS)
    }
}

/// The state that the tree has now, if somebody has opened it.
#[derive(Default)]
pub(super) struct Current(Mutex<Option<Arc<Tree>>>);

impl Current {
    fn lock(&self) -> MutexGuard<'_, Option<Arc<Tree>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tree as the last transaction left it, for whoever holds `guard`.
    pub(super) fn read<'a>(
        &self,
        database: &Database,
        guard: RwLockReadGuard<'a, ()>,
    ) -> Result<Reading<'a>, TreeError> {
        let mut current = self.lock();
        let tree = match &*current {
            Some(tree) => tree.clone(),
            // Locked all the while: what is kept was never opened before the last `forget`.
            None => current.insert(Arc::new(Tree::open(database)?)).clone(),
        };
        Ok(Reading { tree, _guard: guard })
    }

    /// Who reads from now on opens the tree as it is then.
    pub(super) fn forget(&self) {
        let forgotten = self.lock().take();
        drop(forgotten);
    }
}

/// The tree, for somebody who reads it.
pub(super) struct Reading<'a> {
    /// Dropped before the guard, so that nobody who waits for the guard finds the state held.
    tree: Arc<Tree>,
    _guard: RwLockReadGuard<'a, ()>,
}

impl Deref for Reading<'_> {
    type Target = Tree;

    fn deref(&self) -> &Tree {
        &self.tree
    }
}
