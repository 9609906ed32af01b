// The text about each part of the picture, with its chapter of the book, and the tour.
"use strict";

const PARTS = [
  {
    id: "server", name: "API server", go: "kube-apiserver", files: ["src/sim/mod.rs", "docs/embedded-server.md"],
    chapter: "Be the controller", page: "docs/book/src/be-the-controller.md",
    text: "Stores all objects, and tells everybody who watches what has changed. The demo embeds one; windlass run talks to a cluster.",
  },
  {
    id: "reflector", name: "Reflectors", go: "Reflector, ListWatch", files: ["src/cache/reflector.rs", "src/cache/reflector/list_watch.rs"],
    chapter: "2. List and watch", page: "docs/book/src/ch2-list-and-watch.md",
    text: "One for each kind. Lists all objects once, then watches from that version on. When a watch ends, it resumes at the last version; when the server has forgotten that version (410), it lists again.",
  },
  {
    id: "fifo", name: "FIFO", go: "RealFIFO, once DeltaFIFO", files: ["src/cache/store/fifo.rs"],
    chapter: "3. From the wire to memory", page: "docs/book/src/ch3-from-the-wire-to-memory.md",
    text: "Changes in the order in which the server made them. It holds back the reflector when nobody takes them.",
  },
  {
    id: "store", name: "Store", go: "ThreadSafeStore, Indexer, Lister", files: ["src/cache/store.rs", "src/cache/store/index.rs"],
    chapter: "3. From the wire to memory", page: "docs/book/src/ch3-from-the-wire-to-memory.md",
    text: "The objects by name and by index. Workers read here, and not from the server.",
  },
  {
    id: "handlers", name: "Handlers", go: "sharedProcessor, ResourceEventHandler", files: ["src/cache/processor.rs", "src/controller/run/handlers.rs"],
    chapter: "4. Handlers", page: "docs/book/src/ch4-handlers.md",
    text: "Map a changed object to the key to look at: its own, or that of its owner. They do nothing else.",
  },
  {
    id: "queue", name: "Queue", go: "workqueue.TypedRateLimitingInterface", files: ["src/workqueue/queue.rs", "src/workqueue/delaying.rs", "src/workqueue/rate_limiting.rs"],
    chapter: "5. The queue", page: "docs/book/src/ch5-the-queue.md",
    text: "The keys that need a pass. A key is in it once, however often it is added, and is never with two workers. A failed key waits for the end of its backoff. Users' changes come before first lists and resyncs, which age.",
  },
  {
    id: "workers", name: "Workers", go: "runWorker, processNextWorkItem", files: ["src/controller/run/worker.rs", "src/controller/pass/reconciler.rs"],
    chapter: "7. sample-controller", page: "docs/book/src/ch7-sample-controller.md",
    text: "Each takes a key, compares what is with what is wanted, and writes the difference. What a pass waits for is almost always a request.",
  },
  {
    id: "gate", name: "Writes", go: "flowcontrol.RateLimiter, rest.Request", files: ["src/client/gate.rs", "src/client/api_client.rs"],
    chapter: "9. In production", page: "docs/book/src/ch9-in-production.md",
    text: "Requests pass a gate, which applies our limits and the server's requests to slow down. What they change comes back by the watch.",
  },
];

const CALM = { latencyMs: 0, errors: false, throttling: false, webhook: false, outage: false, freeze: false };
const USUAL = [
  { faults: CALM },
  { workers: 2 },
  { retries: { baseDelayMs: 5, qps: 50, burst: 300 } },
  { requests: { qps: 0, burst: 10 } },
  { churn: { rate: 0, hot: false } },
];

const TOUR = [
  {
    title: "A first list",
    text: "A reflector lists all objects of its kind once, and then watches. Compaction makes the server forget the version from which a watch would resume, so each kind is listed again.",
    look: "Look at the caches: “Lists after the first” rises by one for each kind, the store keeps its objects, and no worker writes anything.",
    actions: [{ label: "Compact", changes: ["compact"] }],
  },
  {
    title: "Many changes, few passes",
    text: "A key is in the queue once, however often it is added. Requests now take 200 ms, and one object changes 50 times a second.",
    look: "Look at the plots: changes come many times as fast as passes. Nothing is lost: the next pass sees the newest version.",
    actions: [{ label: "Change one object", changes: [{ faults: { ...CALM, latencyMs: 200 } }, { churn: { rate: 50, hot: true } }] }],
  },
  {
    title: "A hot key keeps one worker, not all",
    text: "A key is never with two workers. Four workers and a hundred new objects: the hot key takes its turn, and the others go on.",
    look: "Look at the busy lanes of foo: load-0000 is in one of them at most.",
    actions: [{ label: "Create 100", changes: [{ workers: 4 }, { create: 100 }] }],
  },
  {
    title: "Backoff after failures",
    text: "Every write fails with 500. A failed key waits 5 ms, then twice as long after each further failure, up to two minutes.",
    look: "Look at “backing off”. Click on such a key to see its failures. When the fault ends, each key comes back at the end of its backoff, and not before.",
    actions: [
      { label: "Writes fail", changes: [{ churn: { rate: 10, hot: false } }, { faults: { ...CALM, errors: true } }] },
      { label: "Writes work again", changes: [{ faults: CALM }] },
    ],
  },
  {
    title: "Too few workers",
    text: "A pass makes some requests of 100 ms each, so a worker makes a few passes a second. One worker cannot keep up with two hundred objects; sixteen can.",
    look: "Look at the depth of the queue, and at the time that keys wait.",
    actions: [
      { label: "One worker, 200 objects", changes: [{ churn: { rate: 0, hot: false } }, { workers: 1 }, { faults: { ...CALM, latencyMs: 100 } }, { create: 200 }] },
      { label: "Sixteen workers", changes: [{ workers: 16 }] },
    ],
  },
  {
    title: "An outage, and recovery",
    text: "Connections break. Reflectors back off, passes fail, and the caches keep what they have. Nothing is deleted because it cannot be read.",
    look: "Look at the reflectors and at the keys that back off; after the outage, at how the watches resume where they were.",
    actions: [
      { label: "Outage", changes: [{ churn: { rate: 10, hot: false } }, { faults: { ...CALM, outage: true } }] },
      { label: "The server is back", changes: [{ faults: CALM }] },
    ],
  },
];
