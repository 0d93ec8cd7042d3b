#!/usr/bin/env python3
# timeout: 600
"""Everything that starts workers through torchelastic, with the real packages from PyPI, under crun
by CRUN_TORCHRUN=1; and the callbacks for Trainers. `make interop-frameworks` makes the virtual
environment that this test needs, and installs the wheel crun-launcher into it."""
import json
import os
import pathlib
import re
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import SCALE, clean_env, run, run_tests, script  # noqa: E402
from crun_test import signal, skip, start, wait_for  # noqa: E402

PYTHON = os.environ.get("CRUN_TEST_FRAMEWORKS_PYTHON")
if not PYTHON:
    skip("CRUN_TEST_FRAMEWORKS_PYTHON is not set; make interop-frameworks sets it")
BIN = pathlib.Path(PYTHON).parent
CRUN = str(BIN / "crun")


def environment(**more):
    return clean_env(**{"PATH": f"{BIN}:/usr/bin:/bin", "OMP_NUM_THREADS": 1, "CRUN_TORCHRUN": 1,
                        "CRUN_TORCHRUN_SHOW": 1, "ACCELERATE_USE_CPU": "true",
                        "CUDA_VISIBLE_DEVICES": "", "PYTHONWARNINGS": "ignore", **more})


def has(*packages):
    """Returns whether all packages are installed; says which one is missing."""
    for package in packages:
        find = f"import importlib.util as u, sys; sys.exit(u.find_spec({package!r}) is None)"
        if run([PYTHON, "-c", find], timeout=100 * SCALE).returncode != 0:
            print(f"left out: {package} is not installed")
            return False
    return True


def check(argv, tmp, expected=0, **more):
    """Runs a command; it must have come to crun. Returns what it printed."""
    done = run(argv, cwd=tmp, env=environment(**more), timeout=120 * SCALE)
    assert done.returncode == expected, done
    assert f"crun: {CRUN} " in done.stderr, done
    return done


SUM = """
import os, sys, torch, torch.distributed as dist
assert "CRUN_AGENT" in os.environ, "not under crun"
dist.init_process_group("gloo")
x = torch.tensor([dist.get_rank() + 1.0]); dist.all_reduce(x)
print(" ".join(["rank", str(dist.get_rank()), "sum", str(x.item()), *sys.argv[1:]]))
dist.destroy_process_group()
"""


def sums(done, words=""):
    found = re.findall(r"rank (\d) sum 3.0 ?(.*)", done.stdout)
    assert sorted(found) == [("0", words), ("1", words)], done


def test_torch_distributed_run(tmp):
    path = script(tmp, "sum.py", SUM)
    for launch in ([PYTHON, "-m", "torch.distributed.run"], [BIN / "torchrun"]):
        sums(check([*launch, "--nproc-per-node=2", path, "a", "--b=c"], tmp), "a --b=c")
    done = check([PYTHON, "-m", "torch.distributed.launch", "--use-env", "--nproc-per-node=2",
                  path], tmp)
    sums(done)


def test_without_the_variable_torch_runs_it(tmp):
    text = "import os; print('agent', 'CRUN_AGENT' in os.environ)"
    done = run([PYTHON, "-m", "torch.distributed.run", script(tmp, "a.py", text)],
               env=environment(CRUN_TORCHRUN=None), timeout=100)
    assert done.stdout == "agent False\n" and "crun: " not in done.stderr, done


def test_a_failing_script(tmp):
    path = script(tmp, "f.py", "import os, sys; sys.exit(3 * (os.environ['RANK'] == '1'))")
    done = check([PYTHON, "-m", "torch.distributed.run", "--nproc-per-node=2", path], tmp, 1)
    assert "ChildFailedError" in done.stderr and "exitcode  : 3 (pid: " in done.stderr, done


LAUNCH = """
import os, sys
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
def f(a, b):
    assert "CRUN_AGENT" in os.environ
    return (a + b, os.environ["RANK"])
def g(x):
    if os.environ["RANK"] == "1": raise ValueError("no " + x)
def c(**more):
    return LaunchConfig(min_nodes=1, max_nodes=1, nproc_per_node=2, run_id="j", max_restarts=0,
                        rdzv_backend="c10d", rdzv_endpoint="localhost:0", **more)
if __name__ == "__main__":
    assert elastic_launch(c(), f)(3, 4) == {0: (7, "0"), 1: (7, "1")}
    try:
        elastic_launch(c(), g)("luck")
        sys.exit("no error")
    except ChildFailedError as e:
        rank, failure = e.get_first_failure()
        assert (rank, failure.local_rank, failure.exitcode, e.name) == (1, 1, 1, "g"), e
        text = failure.error_file_data["message"]["message"]
        assert text == "ValueError: no luck" and list(e.failures) == [1], (text, e.failures)
    y = 5
    h = lambda x: x + y
    assert elastic_launch(c(start_method="fork"), h)(1) == {0: 6, 1: 6}
    print("fine")
"""


def test_elastic_launch_of_a_function(tmp):
    done = check([PYTHON, script(tmp, "launch.py", LAUNCH)], tmp)
    assert done.stdout == "fine\n", done


def test_accelerate(tmp):
    if not has("accelerate"):
        return
    text = """
import os, torch
from accelerate import Accelerator
assert "CRUN_AGENT" in os.environ
a = Accelerator(cpu=True)
print(f"rank {a.process_index} sum {a.reduce(torch.tensor(a.process_index + 1.0)).item()}")
a.end_training()
"""
    sums(check([BIN / "accelerate", "launch", "--num_processes=2", "--num_machines=1",
                "--multi_gpu", "--mixed_precision=no", "--dynamo_backend=no",
                script(tmp, "a.py", text)], tmp))
    notebook = """
import os, sys
from accelerate import notebook_launcher
def f(word):
    assert "CRUN_AGENT" in os.environ
    sys.stdout.write(f"{word} {os.environ['RANK']}\\n")  # one call: print() makes two writes
notebook_launcher(f, ("hello",), num_processes=2, use_port="29511")
"""
    done = check([PYTHON, script(tmp, "n.py", notebook)], tmp)
    words = [line for line in done.stdout.split("\n") if not line.startswith("Launching ")]
    assert sorted(words) == ["", "hello 0", "hello 1"], done


def test_fabric(tmp):
    if not has("lightning"):
        return
    text = """
import os, torch
from lightning.fabric import Fabric
assert "CRUN_AGENT" in os.environ
f = Fabric(accelerator="cpu", devices=2, strategy="ddp")
total = f.all_reduce(f.global_rank + 1.0, reduce_op="sum").item()
print(f"rank {f.global_rank} sum {total}")
"""
    sums(check([BIN / "fabric", "run", "--accelerator=cpu", "--strategy=ddp", "--devices=2",
                script(tmp, "f.py", text)], tmp))


SUM_TO_FILE = SUM.replace("print(", "write(").replace("dist.init", """
def write(*words):
    with open(os.environ["OUT"] + os.environ["RANK"], "w") as file:
        file.write(" ".join(map(str, words)))
dist.init""")


def sums_in_files(tmp, argv, words="", **more):
    """Runs a launcher that keeps the output of its workers. They must have run under crun and
    have written their sums to files."""
    done = run(argv, cwd=tmp, timeout=300 * SCALE,
               env=environment(OUT=tmp / "sum.", CRUN_TORCHRUN_SHOW=None, **more))
    found = {path.name: path.read_text() for path in tmp.glob("sum.?")}
    assert found == {f"sum.{r}": f"rank {r} sum 3.0 {words}".strip() for r in "01"}, (found, done)
    assert done.returncode == 0, done


# What `torchx run -s local_cwd dist.ddp -j 1x2 --script t.py -- a --b=c` does. If nemo-run is
# installed, it takes the local schedulers from torchx's command line.
TORCHX = """
from torchx.components.dist import ddp
from torchx.runner import Runner
from torchx.schedulers.local_scheduler import create_scheduler
with Runner("test", {"local_cwd": create_scheduler}) as runner:
    job = runner.run(ddp("a", "--b=c", script="t.py", j="1x2"), "local_cwd")
    status = runner.wait(job, wait_interval=1)
    assert status.state.name == "SUCCEEDED", status
"""


def test_torchx(tmp):
    if has("torchx"):
        script(tmp, "t.py", SUM_TO_FILE)
        sums_in_files(tmp, [PYTHON, script(tmp, "x.py", TORCHX)], "a --b=c", HOME=tmp)


def test_nemo_run(tmp):
    if not has("nemo_run"):
        return
    script(tmp, "t.py", SUM_TO_FILE)
    text = """
import os, nemo_run
if __name__ == "__main__":
    executor = nemo_run.LocalExecutor(ntasks_per_node=2, launcher="torchrun")
    nemo_run.run(nemo_run.Script(os.path.abspath("t.py"), entrypoint="python"), executor=executor,
                 name="sum", direct=False)
"""
    sums_in_files(tmp, [PYTHON, script(tmp, "n.py", text)], NEMORUN_HOME=tmp / "nemo", HOME=tmp)


def test_ms_swift(tmp):
    """The real `swift sft`, which starts a script of this test in the place of its trainer."""
    if not has("swift"):
        return
    script(tmp, "trainer.py", SUM_TO_FILE)
    text = "from swift.cli.main import cli_main\ncli_main({'sft': 'trainer'})\n"
    sums_in_files(tmp, [PYTHON, script(tmp, "s.py", text), "sft", "a", "--b=c"], "a --b=c",
                  NPROC_PER_NODE=2, HOME=tmp)


# In the workers, python -m axolotl.cli.train runs trainer.py of the test's folder.
TRAINER = """
import importlib.abc, importlib.util, sys
class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "axolotl.cli.train":
            return importlib.util.spec_from_file_location(name, FILE)
sys.meta_path.insert(0, Finder())
"""


def test_axolotl(tmp):
    """axolotl's own launching, by torchrun and by accelerate, with a script of this test in the
    place of its trainer."""
    if not has("axolotl"):
        return
    (tmp / "path").mkdir()
    trainer = script(tmp, "trainer.py", SUM_TO_FILE)
    (tmp / "path" / "sitecustomize.py").write_text(TRAINER.replace("FILE", repr(str(trainer))))
    accelerate = ["--multi_gpu", "--num_processes=2", "--num_machines=1", "--mixed_precision=no",
                  "--dynamo_backend=no"]
    for launcher, options in (("torchrun", ["--nproc-per-node=2"]), ("accelerate", accelerate)):
        text = f"""
from axolotl.cli.utils.train import launch_training
launch_training("my.yml", {launcher!r}, None, {{}}, {options!r})
"""
        for old in tmp.glob("sum.?"):
            old.unlink()
        sums_in_files(tmp, [PYTHON, script(tmp, "x.py", text)], "my.yml", HOME=tmp,
                      PYTHONPATH=tmp / "path")


def notice(tmp, path, saved, mark):
    """Runs a script under crun with two workers; sends a notice when `mark` exists; the script must
    have saved and the node left. Returns what crun printed."""
    with open(tmp / "out", "w") as out:
        launch = start([CRUN, "--nproc-per-node=2", path], env=environment(), cwd=tmp, stdout=out,
                       stderr=out)
        try:
            wait_for(lambda: mark.exists() or launch.poll() is not None, "training", 120 * SCALE)
            launch.send_signal(signal.SIGUSR1)
            launch.wait(60 * SCALE)
        finally:
            launch.kill()
            launch.wait()
    text = (tmp / "out").read_text()
    assert launch.returncode == 1 and "has left the job" in text, text
    assert saved(), text
    assert "failed first" not in text, text


TINY = """
import os, pathlib, torch
data = [{"x": torch.ones(4), "labels": torch.ones(1)} for _ in range(20000)]
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__(); self.layer = torch.nn.Linear(4, 1)
    def forward(self, x, labels=None):
        y = self.layer(x); return {"loss": ((y - labels) ** 2).mean(), "y": y}
def mark(step):
    if step >= 5: pathlib.Path("mark").touch()
"""


def test_trainer_callback(tmp):
    if not has("transformers", "accelerate"):
        return
    notice(tmp, script(tmp, "t.py", TINY + """
from transformers import Trainer, TrainerCallback, TrainingArguments
from crunrt.huggingface import NoticeCallback, newest_checkpoint
class Mark(TrainerCallback):
    def on_step_end(self, args, state, control, **_): mark(state.global_step)
args = TrainingArguments(output_dir="out.d", use_cpu=True, report_to=[], disable_tqdm=True,
                         save_strategy="no", per_device_train_batch_size=1, num_train_epochs=5)
Trainer(Model(), args, train_dataset=data, callbacks=[NoticeCallback(), Mark()]).train(
    resume_from_checkpoint=newest_checkpoint("out.d"))
raise SystemExit("the end was reached")
"""), lambda: list((tmp / "out.d").glob("checkpoint-*/trainer_state.json")), tmp / "mark")


def test_lightning_callback(tmp):
    if not has("lightning"):
        return
    notice(tmp, script(tmp, "t.py", TINY + """
import lightning
from crunrt.lightning import NoticeCallback
class Module(lightning.LightningModule):
    def __init__(self): super().__init__(); self.model = Model()
    def training_step(self, batch, i): mark(i); return self.model(**batch)["loss"]
    def configure_optimizers(self): return torch.optim.SGD(self.parameters(), 0.01)
notice = NoticeCallback("notice.ckpt")
lightning.Trainer(accelerator="cpu", devices=2, strategy="ddp", max_epochs=50, callbacks=[notice],
                  logger=False, enable_checkpointing=False, enable_progress_bar=False).fit(
    Module(), torch.utils.data.DataLoader(data), ckpt_path=notice.newest())
raise SystemExit("the end was reached")
"""), (tmp / "notice.ckpt").exists, tmp / "mark")


def test_accelerate_batches(tmp):
    if not has("accelerate"):
        return
    notice(tmp, script(tmp, "t.py", TINY + """
import accelerate, crunrt.accelerate
a = accelerate.Accelerator(cpu=True)
model = Model(); optimizer = torch.optim.SGD(model.parameters(), 0.01)
model, optimizer, loader = a.prepare(model, optimizer, torch.utils.data.DataLoader(data * 50))
for i, batch in enumerate(crunrt.accelerate.batches(a, loader, "state")):
    a.backward(model(**batch)["loss"]); optimizer.step(); optimizer.zero_grad(); mark(i)
raise SystemExit("the end was reached")
"""), (tmp / "state").exists, tmp / "mark")


def test_the_hook_costs_nothing_without_the_variable(tmp):
    """Measures the line of the .pth file in the interpreter, with and without its variable."""
    line = (pathlib.Path(__file__).parents[2] / "python" / "crun_torchrun.pth").read_text()
    text = f"import timeit; print(min(timeit.repeat({line!r}, number=1000, repeat=20)) / 1000)"
    cost = float(run([PYTHON, "-c", text], env=environment(CRUN_TORCHRUN=None)).stdout)
    print(f"the .pth line takes {cost * 1e6:.1f} us without the variable")
    assert cost < 20e-6, cost


def seconds(argv, tmp, **more):
    begin = time.monotonic()
    done = run(argv, cwd=tmp, env=environment(**more), timeout=100)
    assert done.returncode == 0, done
    return time.monotonic() - begin


def test_start_beside_torchrun(tmp):
    """Records the time of one launch of 2 x true, as crun, by the hook, and as torchrun."""
    runs = {"crun": ([CRUN], {}), "hook": ([PYTHON, "-m", "torch.distributed.run"], {}),
            "torchrun": ([PYTHON, "-m", "torch.distributed.run"], {"CRUN_TORCHRUN": None})}
    best = {name: min(seconds([*argv, "--nproc-per-node=8", "--no-python", "true"], tmp, **more)
                      for _ in range(3)) for name, (argv, more) in runs.items()}
    print("start and end of 8 x true: " + ", ".join(f"{n} {s:.3f} s" for n, s in best.items()))
    assert best["crun"] < best["hook"], best


def test_versions(tmp):
    names = ("torch", "accelerate", "transformers", "lightning", "torchx", "nemo-run", "ms-swift",
             "axolotl")
    text = (f"import importlib.metadata as m, json\nv = {{}}\nfor n in {names!r}:\n"
            "    try: v[n] = m.version(n)\n    except m.PackageNotFoundError: pass\n"
            "print(json.dumps(v))")
    print("versions: ", json.loads(subprocess.run([PYTHON, "-c", text], capture_output=True,
                                                  text=True).stdout))


if __name__ == "__main__":
    run_tests(globals())
