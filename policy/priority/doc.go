// Package priority keeps the book behind the order of a queue: who submitted
// what and when, what each user and account has used, and the priority that
// follows for every waiting job. It is Slurm's multifactor priority with its
// two fair-share algorithms, in Slurm's words; docs/priorities.md has the
// formulas.
//
// # What the driver owes the book
//
// The driver (simulator or head) tells every event once, with times that do
// not decrease: Submitted, then any of Started, Stopped and Requeued, and in
// the end Gone. It asks Due before each step of the policy and hands the ranks
// to policy.State. Asking changes no number: books that were told the same
// events and asked for ranks at the same times agree to the last bit.
//
// # Numbers
//
// What a job is charged per second is an integer, so that sums do not drift
// however often jobs start and stop. Usage decays continuously and is worked
// out from the last change of rate, never step by step. Every product is
// rounded by itself (the explicit float64 conversions forbid fused
// multiply-add), so all machines get the same bits.
//
// The package knows no policy, no state and no clock.
package priority
