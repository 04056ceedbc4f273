// The devices that the daemon has described, and the client of each that the program uses. Layer: transport.
#include "transport.h"

struct device devices[MAX_DEVICES];

int device_count, driver_version;

static _Atomic(struct client *) clients[MAX_DEVICES];           // published when complete; readers take no lock

struct client *client_at(int device) { return atomic_load_explicit(&clients[device], memory_order_acquire); }

void client_publish(struct client *c) { atomic_store(&clients[c->device], c); }

bool client_withdraw(struct client *c) {
	return atomic_compare_exchange_strong(&clients[c->device], &(struct client *){c}, NULL);
}
