// Package slurm is the core of the driver that lets a policy of Muster place the jobs of a real
// Slurm, as a plain value: what Slurm says in, what to tell Slurm out. It keeps a policy.State in
// step with the cluster. The daemon (slurm/driver) reads Slurm through slurm/engine, hands what it
// read to Observe, and does what Take returns.
//
// # Who owns a job
//
// A job is Muster's if its comment says so (muster:req, see slurm/words): the job_submit script
// writes that and holds the job. All others are Slurm's; what they use counts as used. A job of
// Muster that the core does not understand is handed to Slurm's scheduler, unless it asks for
// borrowed GPUs: then it waits with a sentence that says what to change. A job that a user
// released is Slurm's from then on.
//
// # Placing
//
// A waiting job is held. To place it is to give it exactly its nodes, write the answer into its
// comment, and release it, in one request. So Slurm itself tells a driver that was restarted what
// was placed: a job that is not held and whose comment has an answer for this start of it. A job
// that does not start where it was placed, because a node drained, a limit of Slurm is in the way or
// somebody else was faster, is recalled: held again, and offered to the policy again once a listing
// shows it held.
//
// A request whose fate is unknown, because slurmctld or slurmrestd died, keeps what it was given
// until a listing that was asked for a while after shows what became of it.
//
// # What is there is what Slurm says
//
// What a running job has on its nodes is read from Slurm. Where that differs from the plan the book
// is corrected; where it does not fit the book, nothing new is placed on that node until it does.
// Slurm never gives one core or GPU of its own to two jobs; GPUs that are borrowed are in this book
// and in the comments alone, and it is rebuilt from the comments.
//
// The package never reads a clock, opens nothing and draws no random numbers.
package slurm
