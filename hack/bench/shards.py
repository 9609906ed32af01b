"""Fills a server with Foos, and measures replicas of the operator that share them; see shards.sh."""

import argparse
import base64
import concurrent.futures
import hashlib
import http.client
import json
import os
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

CHANGES, CHANGES_PER_SECOND = 300, 20
TICKS = os.sysconf("SC_CLK_TCK")


def say(text):
    print(time.strftime("%H:%M:%S"), text, file=sys.stderr)


class Server:
    """The API server, with a connection for each thread."""

    def __init__(self, kubeconfig):
        # The launcher's kubeconfig is JSON or simple YAML; kubectl turns both into JSON.
        command = ["kubectl", "config", "view", "--raw", "-o", "json"]
        kubectl = os.environ.get("KUBECTL", command[0])
        text = subprocess.run([kubectl, *command[1:], f"--kubeconfig={kubeconfig}"], check=True, capture_output=True)
        config = json.loads(text.stdout)
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self.host = urllib.parse.urlparse(cluster["server"]).netloc
        self.tls = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
        with tempfile.NamedTemporaryFile() as pair:
            for part in ("client-certificate-data", "client-key-data"):
                pair.write(base64.b64decode(user[part]))
            pair.flush()
            self.tls.load_cert_chain(pair.name)
        self.local = threading.local()

    def call(self, method, path, body=None, content_type="application/json"):
        connection = getattr(self.local, "connection", None)
        if connection is None:
            connection = self.local.connection = http.client.HTTPSConnection(self.host, context=self.tls, timeout=60)
        text = None if body is None else json.dumps(body)
        connection.request(method, path, text, {"Content-Type": content_type})
        answer = connection.getresponse()
        data = answer.read()
        if answer.status >= 300 and answer.status != 409:
            raise RuntimeError(f"{method} {path}: {answer.status} {data[:200]!r}")
        return data


def processor_time(pid):
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory(pid):
    """MB in use, and at the peak."""
    with open(f"/proc/{pid}/status") as status:
        lines = dict(line.split(":", 1) for line in status)
    return [int(lines[key].split()[0]) / 1024 for key in ("VmRSS", "VmHWM")]


def team(at):
    return "t" + hashlib.sha256(str(at).encode()).hexdigest()[:12]


def foo_path(at, options):
    namespace = team(at % options.namespaces)
    return f"/apis/samplecontroller.k8s.io/v1alpha1/namespaces/{namespace}/foos"


def fill(server, options):
    def namespace(at):
        server.call("POST", "/api/v1/namespaces", {"metadata": {"name": team(at)}})

    def foo(at):
        spec = {"deploymentName": f"web-{at}", "replicas": 1}
        body = {"apiVersion": "samplecontroller.k8s.io/v1alpha1", "kind": "Foo", "metadata": {"name": f"foo-{at}"}}
        server.call("POST", foo_path(at, options), {**body, "spec": spec})
        if at % 10000 == 9999:
            say(f"created {at + 1} Foos")

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        for work, count in ((namespace, options.namespaces), (foo, options.foos)):
            for done in pool.map(work, range(count)):
                pass


class Replica:
    def __init__(self, options, name, flags):
        self.log = open(f"{options.dir}/{name}.log", "w")
        command = [options.windlass, "run", f"--kubeconfig={options.kubeconfig}", "--controllers=foo", "--workers=8"]
        command += ["--metrics-bind-address=127.0.0.1:0", "--health-probe-bind-address=0", "--audit-period=0"]
        command += ["--leader-elect-resource-namespace=default", "--queue-max-delay=1000s", "--log-format=json", *flags]
        self.process = subprocess.Popen(command, stderr=self.log, stdout=subprocess.DEVNULL)
        self.pid = self.process.pid
        self.port = None

    def metrics(self):
        """The sums of the series of each family."""
        if self.port is None:
            with open(self.log.name) as log:
                for line in log:
                    fields = json.loads(line)
                    fields = fields.get("fields", fields)
                    if "/metrics" in str(fields.get("paths", "")):
                        self.port = int(str(fields["address"]).rsplit(":", 1)[1])
            if self.port is None:
                return {}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", "/metrics")
        sums = {}
        for line in connection.getresponse().read().decode().splitlines():
            if not line.startswith("#"):
                series, value = line.rsplit(" ", 1)
                family = series.split("{")[0]
                if family == "windlass_shards_held":
                    family += series.split("phase=")[1].split('"')[1]
                sums[family] = sums.get(family, 0) + float(value)
        return sums


def stop(replicas):
    """Stops all of them at once, so that none takes over what another one gives up."""
    for replica in replicas:
        replica.process.send_signal(signal.SIGTERM)
    for replica in replicas:
        replica.process.wait(60)


def is_quiet(pid):
    """Whether a process has used less than a quarter of a core for two seconds."""
    before = processor_time(pid)
    time.sleep(2)
    return processor_time(pid) - before < 0.5


def sum_of(replicas, family):
    return sum(replica.metrics().get(family, 0) for replica in replicas)


def at_rest(replicas, options, shards, syncs):
    """Whether all shards are worked and all syncs made."""
    seen = [replica.metrics() for replica in replicas]
    total = lambda family: sum(one.get(family, 0) for one in seen)
    if any(replica.process.poll() is not None for replica in replicas):
        raise RuntimeError(f"a replica has ended; see {replicas[0].log.name}")
    is_worked = shards == 1 or total("windlass_shards_heldworking") == shards
    # The queue's own gauge has the keys that wait; the others are being synced.
    is_idle = total("workqueue_depth") == 0 and total("windlass_queue_waiting") == 0
    is_idle = is_idle and total("controller_runtime_active_workers") == 0
    return is_worked and is_idle and total("controller_runtime_reconcile_total") >= syncs


def until(what, limit=3600):
    started = time.monotonic()
    while not what():
        if time.monotonic() - started > limit:
            raise RuntimeError("it takes too long")
        time.sleep(0.1)
    return time.monotonic() - started


def measure(server, options, count, shards, ranges):
    options.measured += 1
    # What it still does for the last row is not this one's.
    until(lambda: is_quiet(options.server_pid))
    flags = [f"--shards={shards}"] + (["--shard-ranges"] if ranges else [])
    before, started = processor_time(options.server_pid), time.monotonic()
    replicas = [Replica(options, f"replica-{count}-{shards}-{ranges}-{at}", flags) for at in range(count)]
    try:
        until(lambda: at_rest(replicas, options, shards, options.foos))
        took = time.monotonic() - started
        time.sleep(2)
        used = [processor_time(replica.pid) for replica in replicas]
        mb = [memory(replica.pid) for replica in replicas]
        start = [took, max(now for now, _ in mb), max(peak for _, peak in mb), sum(now for now, _ in mb)]
        start += [max(used), sum(used), processor_time(options.server_pid) - before]
        start += [sum_of(replicas, "windlass_cache_lists_total")]
        until(lambda: is_quiet(options.server_pid))
        before, begun = processor_time(options.server_pid), [processor_time(replica.pid) for replica in replicas]
        synced = sum_of(replicas, "controller_runtime_reconcile_total")
        lists = sum_of(replicas, "windlass_cache_lists_total")
        for change in range(CHANGES):
            at = change * (options.foos // CHANGES)
            spec = {"spec": {"replicas": 1 + options.measured % 9}}
            path = f"{foo_path(at, options)}/foo-{at}"
            server.call("PATCH", path, spec, "application/merge-patch+json")
            time.sleep(1 / CHANGES_PER_SECOND)
        until(lambda: at_rest(replicas, options, shards, synced + CHANGES))
        used = [processor_time(replica.pid) - before for replica, before in zip(replicas, begun)]
        lists = sum_of(replicas, "windlass_cache_lists_total") - lists
        return start + [max(used), sum(used), processor_time(options.server_pid) - before, lists]
    finally:
        stop(replicas)


def main():
    parser = argparse.ArgumentParser()
    for flag in ("windlass", "kubeconfig", "dir", "replicas"):
        parser.add_argument(f"--{flag}", required=True)
    for flag in ("server-pid", "foos", "namespaces"):
        parser.add_argument(f"--{flag}", type=int, required=True)
    options = parser.parse_args()
    options.measured = 0
    server = Server(options.kubeconfig)
    say(f"Creating {options.foos} Foos in {options.namespaces} namespaces ...")
    fill(server, options)
    say("Creating their Deployments ...")
    first = Replica(options, "first", ["--shards=1"])
    took = until(lambda: at_rest([first], options, 1, options.foos))
    say(f"{options.foos / took:.0f} a second; {memory(first.pid)[0]:.0f} MB")
    stop([first])

    counts = [int(count) for count in options.replicas.split(",")]
    runs = [("one leader", 1, 1, False)]
    runs += [(f"{count}, client", count, 16, False) for count in counts]
    runs += [(f"{count}, server", count, 16, True) for count in counts]
    columns = ["start", "MB largest", "its peak", "MB all", "s largest", "s all", "s server", "lists"]
    columns += ["s largest", "s all", "s server", "lists"]
    print(f"{options.foos} Foos in {options.namespaces} namespaces; start until at rest; then {CHANGES} changes at {CHANGES_PER_SECOND}/s")
    print(f"{'replicas, filter':18}" + "".join(f"{column:>11}" for column in columns))
    for name, count, shards, ranges in runs:
        row = measure(server, options, count, shards, ranges)
        print(f"{name:18}" + "".join(f"{value:11.2f}" if value < 10 else f"{value:11.1f}" for value in row))


main()
