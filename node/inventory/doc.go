// Package inventory is a node's devices by their numbers, as a value that never changes: those that are
// there, and those that are gone and whose numbers wait for others. It finds a device by what a person
// calls it, and says what a device that comes would be. It knows nothing about who is on a device.
package inventory
