// ivm-nbody --way guided, in virtual time: nbody FIRST END.
#include "model.h"

#include <stdio.h>
#include <stdlib.h>

int nbody_main(int argc, char **argv); // of examples/ivm

static int element(void)
{
	static char bodies[16], cores[32];
	int devices = 2, id;
	ivmGetMyId(&id);
	if (id == 0) {
		snprintf(bodies, sizeof bodies, "%d", 30 + (int)(model_random() * 100));
		devices += (int)(model_random() * 6);
		for (int i = 0; i < devices; i++)
			snprintf(cores + 2 * i, 3, "1,");
		cores[2 * devices - 1] = 0;
	}
	return nbody_main(11, (char *[]){"ivm-nbody", "--size", bodies, "--repeat", "3", "--way", "guided", "--gpus", "0", "--cpus", cores, NULL});
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	model_program = element;
	return model_runs(atol(argv[1]), atol(argv[2]), 8) > 0;
}
