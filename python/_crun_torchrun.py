"""With CRUN_TORCHRUN=1 in the environment, everything that starts workers through torchelastic runs
under crun instead: torchrun, python -m torch.distributed.run, accelerate launch, fabric run,
elastic_launch(config, function), notebook launchers.

All of them arrive at torch.distributed.launcher.api.launch_agent. crun_torchrun.pth, which the
interpreter reads when it starts, calls install(), which waits for that module to be imported and
then puts launch_agent() of this file in its place. Without the variable nothing is imported.

A job that crun cannot run, because its function cannot be sent to another process, goes to
torchelastic as before; one line says so.
"""
import importlib.abc
import importlib.util
import multiprocessing.spawn
import os
import pickle
import shutil
import subprocess
import sys
import tempfile

MODULE = "torch.distributed.launcher.api"


class Finder(importlib.abc.MetaPathFinder):
    """Finds MODULE as before, and replaces its launch_agent once it has been loaded."""

    def find_spec(self, name, path, target=None):
        if name != MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def load_and_replace(module):
            load(module)
            replace(module)
        spec.loader.exec_module = load_and_replace
        return spec


def install():
    """Called by crun_torchrun.pth. A worker inherits the environment, but starts no workers."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        sys.meta_path.insert(0, Finder())


def replace(api):
    torch_launch_agent = api.launch_agent

    def launch_agent(config, entrypoint, args, *more, **named):
        try:
            job = Job(config, entrypoint, args)
        except Unsuitable as why:
            print(f"crun: {why}; torchelastic runs this job", file=sys.stderr, flush=True)
            return torch_launch_agent(config, entrypoint, args, *more, **named)
        with job:
            return job.run(api)
    api.launch_agent = launch_agent


class Unsuitable(Exception):
    """crun cannot run this job; the text says why."""


def find_crun():
    """Returns the path of crun: CRUN, beside this Python, beside this file's package, or PATH."""
    beside = os.path.join(os.path.dirname(sys.executable), "crun")
    found = os.environ.get("CRUN") or (beside if os.access(beside, os.X_OK) else None)
    found = found or shutil.which("crun")
    if not found:
        raise Unsuitable("there is no program crun in PATH; set CRUN to its path")
    return found


def mask(value):
    """Returns the text of a torch Std, or of a dict of them by local rank."""
    if isinstance(value, dict):
        return ",".join(f"{rank}:{int(std)}" for rank, std in value.items())
    return str(int(value))


def rendezvous_options(config):
    settings = {k: v for k, v in (config.rdzv_configs or {}).items() if v is not None}
    rank, timeout = settings.pop("rank", None), settings.get("timeout")
    if timeout == 900:  # LaunchConfig's own default, which crun has as well
        del settings["timeout"]
    options = [f"--rdzv-backend={config.rdzv_backend}", f"--rdzv-id={config.run_id}"]
    if config.rdzv_backend == "static":
        host, _, port = (config.rdzv_endpoint or "127.0.0.1:29500").strip().rpartition(":")
        options += [f"--master-addr={host}", f"--master-port={port}", f"--node-rank={rank or 0}"]
    elif config.rdzv_endpoint:
        options.append(f"--rdzv-endpoint={config.rdzv_endpoint.strip()}")
    if settings:
        options.append("--rdzv-conf=" + ",".join(f"{k}={v}" for k, v in settings.items()))
    return options


def output_options(config):
    logs = config.logs_specs
    if type(logs).__name__ != "DefaultLogsSpecs":
        raise Unsuitable(f"logs specs of class {type(logs).__name__} are Python code of torchrun's")
    options = [f"--redirects={mask(logs._redirects)}", f"--tee={mask(logs._tee)}"]
    if logs._root_log_dir:
        options.append(f"--log-dir={logs._root_log_dir}")
    if logs._local_ranks_filter:
        options.append("--local-ranks-filter=" + ",".join(map(str, logs._local_ranks_filter)))
    for name in ("duplicate_stdout_filters", "duplicate_stderr_filters"):
        texts = getattr(config, name, None)
        if texts:
            joined = ",".join(text.replace(",", ",,") for text in texts)
            options.append(f"--{name.replace('_', '-')}={joined}")
    return options


def other_options(config):
    """Options that not every release of torch has."""
    options = []
    for field, option in (("log_line_prefix_template", "--log-line-prefix-template"),
                          ("local_addr", "--local-addr"),
                          ("signals_to_handle", "--signals-to-handle"),
                          ("shutdown_timeout", "--shutdown-timeout")):
        value = getattr(config, field, None)
        if value is not None:
            options.append(f"{option}={value}")
    if getattr(config, "virtual_local_rank", False):
        options.append("--virtual-local-rank")
    numa = getattr(config, "numa_options", None)
    if numa is not None:
        options.append(f"--numa-binding={numa.affinity_mode.value}")
    if config.event_log_handler in ("null", "console"):
        options.append(f"--event-log-handler={config.event_log_handler}")
    return options


def options_of(config):
    """Returns crun's options for a torch LaunchConfig: each of its fields has one."""
    return [f"--nnodes={config.min_nodes}:{config.max_nodes}",
            f"--nproc-per-node={config.nproc_per_node}", f"--role={config.role}",
            f"--max-restarts={config.max_restarts}", *rendezvous_options(config),
            *output_options(config), *other_options(config)]


def send_function(function, args, start_method):
    """Returns the bytes by which a new process gets the function and its arguments. Like
    torch.multiprocessing's spawn, it names functions and lets the worker import the main module;
    where that cannot work, cloudpickle sends the function itself, if it is installed."""
    try:
        if start_method == "fork":  # the function may be one of a notebook
            raise pickle.PicklingError("the main module is not imported again")
        from multiprocessing.reduction import ForkingPickler
        main = multiprocessing.spawn.get_preparation_data("crun worker")
        return pickle.dumps((main, bytes(ForkingPickler.dumps((function, list(args))))))
    except Exception as why:
        try:
            import cloudpickle
            return pickle.dumps((None, cloudpickle.dumps((function, list(args)))))
        except Exception as also:
            raise Unsuitable(f"the function {getattr(function, '__qualname__', function)} cannot "
                             f"be sent to another process ({why}; with cloudpickle: {also})")


class Job:
    """One launch: crun's command line, and the folder through which results come back."""

    def __init__(self, config, entrypoint, args):
        self.config, self.entrypoint, self.folder = config, entrypoint, None
        self.crun, self.options = find_crun(), options_of(config)
        if callable(entrypoint):
            self.sent = send_function(entrypoint, args, config.start_method)
            self.command = [sys.executable, "-u", __file__]
        else:
            self.sent, self.command = None, [entrypoint, *map(str, args)]

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="crun_launch_")
        if self.sent is not None:
            with open(os.path.join(self.folder, "function"), "wb") as file:
                file.write(self.sent)
            self.command.append(self.folder)
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder, ignore_errors=True)

    def environment(self):
        env = dict(os.environ, CRUN_FAILURES_FILE=os.path.join(self.folder, "failures"))
        env.pop("CRUN_TORCHRUN", None)
        return env

    def run(self, api):
        argv = [self.crun, *self.options, "--no-python", *self.command]
        if os.environ.get("CRUN_TORCHRUN_SHOW"):
            print("crun:", *argv, file=sys.stderr, flush=True)
        process = subprocess.Popen(argv, env=self.environment())
        try:
            status = wait_for(process)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
        if status != 0:
            self.fail(api, status)
        return self.results()

    def results(self):
        """Returns what torchelastic returns: {rank: value} of this node's workers. Only the last
        attempt counts: in an earlier one a worker may have ended well, too."""
        if self.sent is None:
            return dict.fromkeys(range(self.config.nproc_per_node))
        found = []
        for name in os.listdir(self.folder):
            if name.startswith("result."):
                with open(os.path.join(self.folder, name), "rb") as file:
                    found.append(pickle.load(file))
        last = max((restart for restart, _, _ in found), default=0)
        return {rank: value for restart, rank, value in sorted(found, key=lambda f: f[:2])
                if restart == last}

    def fail(self, api, status):
        """Raises what torchelastic raises: ChildFailedError with the workers that failed."""
        from torch.distributed.elastic.multiprocessing.errors import ProcessFailure
        failures = {}
        try:
            with open(os.path.join(self.folder, "failures")) as file:
                for line in file:
                    rank, local_rank, pid, code, path = line.rstrip("\n").split(" ", 4)
                    failures[int(rank)] = ProcessFailure(int(local_rank), int(pid), int(code),
                                                         path or "<N/A>")
        except FileNotFoundError:
            pass
        if status < 0:
            raise api.SignalException(f"crun (pid {os.getpid()}) was ended", -status)
        if not failures:
            failures[0] = ProcessFailure(0, 0, status, "<N/A>")
        name = api._get_entrypoint_name(self.entrypoint, self.command[1:])
        raise api.ChildFailedError(name, failures)


def wait_for(process):
    """Waits for crun. Signals that a terminal sends reach crun itself; those that somebody sends to
    this process are passed on."""
    import signal
    import threading
    if threading.current_thread() is not threading.main_thread():
        return process.wait()
    handled = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)

    def pass_on(number, _frame):
        if process.poll() is None:
            process.send_signal(number)
    before = {number: signal.signal(number, pass_on) for number in handled}
    try:
        return process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_function(folder):
    """The worker of a job whose entry point is a function."""
    with open(os.path.join(folder, "function"), "rb") as file:
        main, data = pickle.load(file)
    if main is not None:
        multiprocessing.spawn.prepare(main)
    function, args = pickle.loads(data)
    from torch.distributed.elastic.multiprocessing.errors import record
    value = record(function)(*args)
    rank, restart = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    path = os.path.join(folder, f"{restart}.{rank}")
    with open(path, "wb") as file:
        pickle.dump((restart, rank, value), file)
    os.replace(path, os.path.join(folder, f"result.{restart}.{rank}"))


if __name__ == "__main__":
    run_function(sys.argv[1])
