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
//! | [`object`] | `store.go` (`KeyFunc`), `meta` accessors | what the cache needs from a type |
//! | [`object_name`], [`meta`], [`owner`] | `object-names.go`, `meta` | the key used everywhere, metadata, owners |
//! | [`text`] | | texts and labels that many objects share |
//! | [`decode`], [`cached`] | | objects that do not decode keep their identity |
//! | [`reflector`] | `reflector.go` | lists, watches, resumes, relists |
//! | [`list_watch`] | `listwatch.go` (`ListerWatcher`) | what the reflector needs of a server |
//! | `reflector/http`, `wire` | `listwatch.go` (`ListWatch`), `rest/watch` | the cache's requests to the API server, as JSON or [protobuf](crate::client::protobuf) |
//! | [`fifo`] | `the_real_fifo.go` | ordered queue of changes between reflector and pump |
//! | [`store`], [`index`] | `thread_safe_store.go`, `index.go` | objects by name, and inverted indexes |
//! | [`listers`] | `listers.go` | read-only view of a store |
//! | [`processor`], `listener` | `shared_informer.go` (`sharedProcessor`, `processorListener`) | fans out to handlers |
//! | `processor/pump` | `controller.go` | applies changes to the store, then notifies the processor |
//! | [`handlers`] | `controller.go` (`ResourceEventHandlerFuncs`) | the handler trait, handlers of closures, and filters |
//! | [`synctrack`] | `synctrack/` | the `Synced` handle |
//! | [`shared_informer`] | `shared_informer.go` | combines the parts above |
//! | [`factory`] | `informers/factory.go` | one informer per kind |
//! | [`namespaced`] | controller-runtime `multi_namespace_cache.go` | one informer per namespace, behind one lister |

pub mod factory;
mod health;
pub mod namespaced;
pub mod object;
pub mod processor;
pub mod reflector;
pub mod shared_informer;
pub mod store;
pub mod synctrack;

pub use factory::{InformerError, SharedInformerFactory};
pub use health::{
    CacheState, HandlerState, ListReason, ProcessingLatency, Progress, ReflectorPhase, Traffic,
};
pub use namespaced::NamespacedInformers;
pub use object::cached::Cached;
pub use object::decode::Unreadable;
pub use object::meta::Meta;
pub use object::object_name::ObjectName;
pub use object::owner::ControllerRef;
pub use object::slim::Slim;
pub use object::text::{Text, TextMap};
pub use object::version::compare as compare_versions;
pub use object::{DynamicObject, Object, TypedObject, cached, decode, meta, object_name, owner, text};
pub use processor::handlers::{self, Deleted, EventHandler, FilteredHandler, HandlerFns, filtered};
pub(crate) use processor::listener;
pub use processor::resync::{InvalidResyncPeriod, ResyncPeriod};
pub use processor::{HandlerOptions, HandlerResync, Registration};
pub use reflector::WatchErrorHandler;
pub use reflector::http::{ListWatch, Transform};
pub use reflector::list_watch::{self, ListerWatcher, Selection};
pub use shared_informer::{Ended, InformerConfig, SharedInformer};
pub use store::fifo;
pub use store::index::{self, IndexConflict, IndexFn, Indexers};
pub use store::listers::{self, Lister};
pub use store::{Store, UnknownIndex};
pub use synctrack::{Synced, wait_for_cache_sync};
