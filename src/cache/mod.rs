//! The shared informer cache: one list and watch per kind for the whole process, a store whose
//! readers never wait for a relist, and handlers that are notified of every change in order.
//!
//! Mirrors client-go `tools/cache`.
//!
//! ```text
//! API server ─list/watch─▶ reflector ─▶ fifo ─▶ pump ─▶ store (indexed) ─▶ listers
//!                                                └────▶ processor ─▶ handlers
//! ```
//!
//! | module | client-go | in one sentence |
//! |---|---|---|
//! | [`object_name`] | `object-names.go` | the key used everywhere |
//! | [`object`] | `store.go` (`KeyFunc`), `meta` accessors | what the cache needs from a type, and objects that do not decode |
//! | [`list_watch`] | `listwatch.go` | the cache's requests to the API server |
//! | `wire` | `rest/watch/decoder.go` | decodes watch lines and list pages |
//! | [`reflector`] | `reflector.go` | lists, watches, resumes, relists |
//! | [`fifo`] | `the_real_fifo.go` | ordered queue of changes between reflector and pump |
//! | [`store`], [`index`] | `thread_safe_store.go`, `index.go` | objects by name, and inverted indexes |
//! | `pump` | `controller.go` | applies changes to the store, then notifies the processor |
//! | [`processor`] | `shared_informer.go` (`sharedProcessor`) | fans out to handlers |
//! | [`synctrack`] | `synctrack/` | the `Synced` handle |
//! | [`shared_informer`] | `shared_informer.go` | combines the parts above |
//! | [`factory`] | `informers/factory.go` | one informer per kind |
//! | [`listers`] | `listers.go` | read-only view of a store |

mod backoff;
pub mod factory;
pub mod fifo;
mod health;
pub mod index;
pub mod list_watch;
pub mod listers;
pub mod object;
pub mod object_name;
pub mod processor;
mod pump;
pub mod reflector;
pub mod shared_informer;
pub mod store;
pub mod synctrack;
mod version;
mod wire;

pub use factory::SharedInformerFactory;
pub use health::{CacheState, HandlerState, Progress, ReflectorPhase};
pub use index::{IndexFn, Indexers};
pub use list_watch::{ListWatch, ListerWatcher};
pub use listers::Lister;
pub use object::{Cached, ControllerRef, Meta, Object, Unreadable};
pub use object_name::ObjectName;
pub use processor::{Deleted, EventHandler, Registration};
pub use shared_informer::{Ended, InformerConfig, SharedInformer};
pub use store::{Store, UnknownIndex};
pub use synctrack::{Synced, wait_for_cache_sync};
pub use version::compare as compare_versions;
