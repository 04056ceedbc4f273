package assembly

import (
	"fmt"
	"log/slog"
	"sync"

	"muster/internal/wholefile"
)

// tokens looks at the files from which the node has tokens. A file that every user of the machine can
// read is a warning and no error: a node that has served with it so far goes on to serve after an
// upgrade.
type tokens struct {
	log    *slog.Logger
	warned sync.Map // by file, since devices are opened again when their lender comes back
}

func (t *tokens) look(file string) {
	if file == "" || !wholefile.Public(file) {
		return
	}
	if _, before := t.warned.LoadOrStore(file, true); !before {
		t.log.Warn(fmt.Sprintf("the mode of %s lets every user read its token, and use the devices that it is for: chmod 600 %s", file, file))
	}
}
