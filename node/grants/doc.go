// Package grants is the book of a node's grants: which programs may use which of its devices, and how
// many of them at a time. The dispatcher hears of each first, and may refuse it. The book knows neither
// clients nor how a grant is asked for.
package grants
