"""Sends the requests that an operator made in one namespace once more, into another one, as some other client.

    replay.py AUDIT_LOG FROM_BYTE TO_BYTE NAMESPACE INTO prepare|send

`prepare` creates what the requests need: a Pod for each one that was deleted, a ConfigMap for each object that was
read or changed. `send` sends every request that windlass made in NAMESPACE between these
bytes of the audit log: no sooner after the first than windlass did, and no more at once. A
create or a delete is one of the same kind; every read and change is one of a ConfigMap, with a body as small.

Prints the number of requests, their answers, and how long they took. KUBECONFIG names the server.
"""

import base64, collections, datetime, http.client, json, os, queue, ssl, subprocess, sys, tempfile, threading, time

audit, start, stop, namespace, into, step = sys.argv[1:]


def moment(text):
    return datetime.datetime.fromisoformat(text).timestamp()


def recorded():
    """Returns what the operator asked for, in the order in which it was sent."""
    found = []
    with open(audit, "rb") as book:
        book.seek(int(start))
        whole_lines = book.read(int(stop) - int(start)).split(b"\n")[1:-1]
        for line in whole_lines:
            entry = json.loads(line)
            what = entry.get("objectRef", {})
            if what.get("namespace") == namespace and entry["userAgent"].startswith("windlass/"):
                if entry["verb"] not in ("list", "watch"):
                    begun, ended = (moment(entry[stamp]) for stamp in ("requestReceivedTimestamp", "stageTimestamp"))
                    found.append((begun, ended, entry["verb"], what))
    return sorted(found, key=lambda request: request[0])


def at_once(requests):
    ends = [(begun, 1) for begun, *_ in requests] + [(ended, -1) for _, ended, *_ in requests]
    most = now = 0
    for _, change in sorted(ends):
        now += change
        most = max(most, now)
    return most


def config():
    """Returns host, port and TLS of the server that KUBECONFIG names."""
    text = subprocess.check_output([os.environ.get("KUBECTL", "kubectl"), "config", "view", "--raw", "--minify", "-o", "json"])
    view = json.loads(text)
    cluster, user = view["clusters"][0]["cluster"], view["users"][0]["user"]

    def as_file(holder, key):
        if key in holder:
            return holder[key]
        with tempfile.NamedTemporaryFile(delete=False) as file:
            file.write(base64.b64decode(holder[f"{key}-data"]))
        return file.name

    tls = ssl.create_default_context(cafile=as_file(cluster, "certificate-authority"))
    tls.load_cert_chain(as_file(user, "client-certificate"), as_file(user, "client-key"))
    host, port = cluster["server"].removeprefix("https://").rstrip("/").rsplit(":", 1)
    return host, int(port), tls


PATHS = {"pods": "/api/v1", "services": "/api/v1", "deployments": "/apis/apps/v1", "ingresses": "/apis/networking.k8s.io/v1", "events": "/apis/events.k8s.io/v1"}
CONTAINERS = {"containers": [{"name": "c", "image": "i"}]}


def created(resource, number):
    """Returns the body of an object like those that the operator creates."""
    metadata = {"name": f"again-{number}"}
    if resource == "pods":
        return {"metadata": metadata, "spec": CONTAINERS}
    if resource == "services":
        return {"metadata": metadata, "spec": {"ports": [{"port": 80}], "selector": {"app": "a"}}}
    if resource == "deployments":
        template = {"metadata": {"labels": {"app": "a"}}, "spec": CONTAINERS}
        return {"metadata": metadata, "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "a"}}, "template": template}}
    if resource == "ingresses":
        backend = {"service": {"name": "a", "port": {"number": 80}}}
        return {"metadata": metadata, "spec": {"defaultBackend": backend}}
    regarding = {"kind": "ConfigMap", "namespace": into, "name": "again"}
    reporter = {"reportingController": "again", "reportingInstance": "again", "action": "Again", "reason": "Again"}
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {"metadata": metadata, "eventTime": now, "type": "Warning", "regarding": regarding, **reporter}


def as_other_client(requests):
    """Returns method, path and body for each request, and the names of the Pods and ConfigMaps that they need."""
    pods, maps, found = 0, {}, []
    for number, (_, _, verb, what) in enumerate(requests):
        resource = what["resource"]
        if verb == "create" and resource in PATHS and not what.get("subresource"):
            found.append(("POST", f"{PATHS[resource]}/namespaces/{into}/{resource}", created(resource, number)))
        elif verb == "delete" and resource == "pods":
            found.append(("DELETE", f"/api/v1/namespaces/{into}/pods/again-{pods}", None))
            pods += 1
        else:
            name = maps.setdefault((resource, what.get("name")), f"again-{len(maps)}")
            change = None if verb == "get" else {"data": {"number": str(number)}}
            found.append(("PATCH" if change else "GET", f"/api/v1/namespaces/{into}/configmaps/{name}", change))
    return found, pods, list(maps.values())


def work(todo, send):
    """Calls `send` for each item, with a connection of its own in each of the threads."""
    host, port, tls = config()

    def serve():
        connection = http.client.HTTPSConnection(host, port, context=tls)
        while (item := todo.get()) is not None:
            send(connection, *item)

    threads = [threading.Thread(target=serve) for _ in range(connections)]
    for thread in threads:
        thread.start()
    for _ in threads:
        todo.put(None)
    for thread in threads:
        thread.join()


def ask(connection, method, path, body):
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    connection.request(method, path, body and json.dumps(body), {"Content-Type": kind, "User-Agent": "replay"})
    with connection.getresponse() as response:
        response.read()
        return response.status


requests = recorded()
connections = max(1, at_once(requests))
others, pods, maps = as_other_client(requests)
todo, answers = queue.Queue(), collections.Counter()

if step == "prepare":
    connections = 8
    for number in range(pods):
        todo.put(("POST", f"/api/v1/namespaces/{into}/pods", created("pods", number)))
    for name in maps:
        todo.put(("POST", f"/api/v1/namespaces/{into}/configmaps", {"metadata": {"name": name}}))
    work(todo, lambda *request: answers.update([f"POST {ask(*request)}"]))
else:
    began = time.time()
    for (at, *_), request in zip(requests, others):
        todo.put((at - requests[0][0], *request))

    def send_in_time(connection, offset, method, path, body):
        time.sleep(max(0, began + offset - time.time()))
        answers.update([f"{method} {ask(connection, method, path, body)}"])

    work(todo, send_in_time)
    took, planned = time.time() - began, requests[-1][0] - requests[0][0] if requests else 0
    print(f"{len(requests)} requests, at most {connections} at once, in {took:.0f} s; windlass began its last after {planned:.0f} s", end="; ")
print(", ".join(f"{count} {answer}" for answer, count in sorted(answers.items())) or "nothing to do")
