"""A study on the machines of a Ray cluster: `ablation run --on ray`.

One driver, many workers. The driver is the `ablation run` process. It holds the run's lock and is the only one that writes the
run folder, its journal and the ledger. It runs the same `runner.Study` as a serial run does: gates, deviations, stop rules,
grades of sweeps and readouts, and what comes after what. What needs a model, it hands to workers as units:

- the batches of a sweep, a readout or a check, dealt to as many tasks as the cluster has places for now. A batch is what a local
  policy samples at one time, so its rollouts do not depend on where, or beside what, it is sampled;
- the updates of an arm, one after the other in one task, with the model loaded once.

A worker gets the files that its unit starts from and runs the same code in a scratch folder of its own (`worker`). Its journal
and its folder are a relay: each event that a serial run would have written goes to the driver together with the files that
appeared after it, as the next object of a Ray generator. The driver checks the digest of every file, appends the event and then
writes the files, as a serial run does, and nothing else is written in between. So a kill of the driver at any moment leaves
a run folder that a serial run could have left, and either kind of run goes on from it.

What is Ray's: placing tasks by the CPUs and GPUs that they need, moving content (its object store), noticing that a worker or a
node is gone, cancelling, ending processes. Ray's own retry of a task is off: it would begin with the inputs of the first try, and
do again what was delivered. A unit whose worker was lost is submitted anew with what is on the driver's disk by then, up to
`dispatch.TRIES` times in a row without anything delivered in between.

Order. Threads of the driver, one for each arm, take turns: one of them works, and those that wait for workers let the others. The
sweep of the first family comes first, as everything needs it, then that of a family before its arms. Arms of one
call of `Study._run_each` run beside each other; the second call (what the first one decides on) waits for the first.

No file system is shared. Sweeps, checkpoints and rollouts go through the object store. The base model and the start adapter
do not: a worker finds them at the plan's place (see `worker.need_model`), and what has another digest than the lock says
is refused, as is a worker with other versions of this program or its packages (`versions`).

The driver's clock is the only one that the journal has. Each event that a worker caused names it (`worker`: HOST:PID, and
the node), `model_loaded` says what device it has.

External arms are refused: their command is of the machine that the user sits at. `ablation run --arm` without `--on` trains
them, before or after.
"""
