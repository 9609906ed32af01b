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
//! | [`object`], [`meta`], [`owner`] | `store.go` (`KeyFunc`), `meta` accessors | what the cache needs from a type |
//! | [`text`] | | texts and labels that many objects share |
//! | [`decode`], [`cached`] | | objects that do not decode keep their identity |
//! | [`list_watch`] | `listwatch.go` (`ListerWatcher`) | what the reflector needs of a server |
//! | `http`, `wire` | `listwatch.go` (`ListWatch`), `rest/watch` | the cache's requests to the API server |
//! | [`reflector`] | `reflector.go` | lists, watches, resumes, relists |
//! | [`fifo`] | `the_real_fifo.go` | ordered queue of changes between reflector and pump |
//! | [`store`], [`index`] | `thread_safe_store.go`, `index.go` | objects by name, and inverted indexes |
//! | `pump` | `controller.go` | applies changes to the store, then notifies the processor |
//! | [`processor`], `listener` | `shared_informer.go` (`sharedProcessor`, `processorListener`) | fans out to handlers |
//! | [`handlers`] | `controller.go` (`ResourceEventHandlerFuncs`) | handlers of closures, and filters |
//! | [`synctrack`] | `synctrack/` | the `Synced` handle |
//! | [`shared_informer`] | `shared_informer.go` | combines the parts above |
//! | [`factory`] | `informers/factory.go` | one informer per kind |
//! | [`listers`] | `listers.go` | read-only view of a store |
//! | [`namespaced`] | controller-runtime `multi_namespace_cache.go` | several namespaces behind one lister |

mod backoff;
pub mod cached;
pub mod decode;
pub mod factory;
pub mod fifo;
pub mod handlers;
mod health;
mod http;
pub mod index;
pub mod list_watch;
pub(crate) mod listener;
pub mod listers;
pub mod meta;
pub mod namespaced;
pub mod object;
pub mod object_name;
pub mod owner;
pub mod processor;
mod pump;
pub mod reflector;
mod resync;
pub mod shared_informer;
pub mod store;
pub mod synctrack;
pub mod text;
mod version;
mod wire;

pub use cached::Cached;
pub use decode::Unreadable;
pub use factory::{InformerError, SharedInformerFactory};
pub use handlers::{FilteredHandler, HandlerFns, filtered};
pub use health::{CacheState, HandlerState, ListReason, ProcessingLatency, Progress, ReflectorPhase};
pub use http::{ListWatch, Transform};
pub use index::{IndexConflict, IndexFn, Indexers};
pub use list_watch::{ListerWatcher, Traffic};
pub use listers::Lister;
pub use meta::Meta;
pub use namespaced::NamespacedInformers;
pub use object::{DynamicObject, Object, TypedObject};
pub use object_name::ObjectName;
pub use owner::ControllerRef;
pub use processor::{Deleted, EventHandler, HandlerOptions, HandlerResync, Registration};
pub use resync::{InvalidResyncPeriod, ResyncPeriod};
pub use shared_informer::{Ended, InformerConfig, SharedInformer, WatchErrorHandler};
pub use store::{Store, UnknownIndex};
pub use synctrack::{Synced, wait_for_cache_sync};
pub use text::{Text, TextMap};
pub use version::compare as compare_versions;
