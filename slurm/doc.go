// Package slurm is the core of the driver that lets a policy of Muster place the jobs of a real
// Slurm, as a plain value: what Slurm says in, what to tell Slurm out. It keeps a policy.State in
// step with the cluster. The daemon (slurm/driver) reads Slurm through slurm/engine, hands what it
// read to Observe, and does what Take returns.
//
// # Who owns a job
//
// A job is Muster's if its comment says so (muster:req, see slurm/words): the job_submit script
// writes that and holds the job. All others are Slurm's; what they use counts as used. The core
// hands a job of Muster that it does not understand to Slurm's scheduler, unless the job asks for
// borrowed GPUs: then it waits with a sentence that says what to change. A job that a user released
// is Slurm's from then on.
//
// # Placing
//
// A waiting job is held. To place it, the driver gives it exactly its nodes, writes the answer into
// its comment, and releases it, in one request. So Slurm itself tells a restarted driver what was
// placed: a job that is not held and whose comment has an answer for this start of it. A job that
// does not start where it was placed, because a node drained, a limit of Slurm is in the way or
// another job was faster, is recalled: held again, and offered to the policy again once a listing
// shows it held.
//
// While the outcome of a request is unknown, because slurmctld or slurmrestd died, the job keeps
// the nodes that it was given, until a listing that was requested some time later shows the
// outcome.
//
// # Slurm's word counts
//
// The core reads from Slurm what a running job has on its nodes. Where that differs from the plan,
// the core corrects the policy's book; where the book has no room for it, nothing new is placed on
// that node until it has. Slurm never gives one core or GPU of its own to two jobs. Borrowed GPUs
// are only in this book and in the comments, from which a restarted driver rebuilds it.
//
// # Parts
//
// The core is made of parts, each of which knows only parts below it: what there is (roster, fleet), what
// jobs ask for (reader) and how they rank (ranks), what they have (ledger), and above it lending and
// stopper. The core itself moves each job from phase to phase.
//
// The package never reads a clock, opens nothing and draws no random numbers.
package slurm
