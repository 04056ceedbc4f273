// Package grants is the book of a node's grants: which programs may use which of its devices, and how
// many of them at a time. The dispatcher hears of each first, and may refuse it. The book knows neither
// clients nor how a grant is asked for.
//
// Grants are what the node knows of jobs: that programs which show a certain credential may
// use certain devices, each whole or with a share of its memory, and at most Limit of them
// at a time. Root, or the user whose node it is, admits and revokes them. Only hashes of
// credentials are kept, save by a node that has devices of others for a grant: it shows those the credential,
// as a ticket (control.Lender). Such a device is added with the grant and removed with it.
//
// A program under a grant sees the granted devices and no others, in the grant's order. Its
// client is put on the device that it asked for and nowhere else: the dispatcher enforces
// that, and keeps reserved devices from others (vgpu, Grants). All clients of one grant on
// one device together have no more memory than the share. When a grant is revoked, or its
// time is over, its clients end with that reason.
//
// The daemon's state folder has the grants, so that the next daemon knows them before it
// adopts clients that are under them. A daemon that ends for good forgets them.
package grants
