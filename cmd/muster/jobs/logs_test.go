package jobs

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	headclient "muster/head/client"
)

// What Ctrl-C means while a job is followed is the user's choice.
func TestOnInterrupt(t *testing.T) {
	for answer, want := range map[string]struct {
		asked string
		left  bool
	}{
		"c\n": {"DELETE /v1/jobs/17", false}, "i\n": {"DELETE /v1/jobs/17?signal=INT", false}, "\n": {"", false}, "d\n": {"", true}, "": {"", true},
	} {
		socket := "@muster-test-interrupt-" + rand.Text()
		listener, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		asked := ""
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked = r.Method + " " + r.URL.RequestURI()
			_, _ = w.Write([]byte(`{"jobs": [17]}`))
		})}
		go func() { _ = server.Serve(listener) }()
		h, err := headclient.Open("unix:"+socket, "")
		if err != nil {
			t.Fatal(err)
		}
		c := &cobra.Command{}
		var stderr bytes.Buffer
		c.SetErr(&stderr)
		err = (&logsFlags{}).onInterrupt(context.Background(), c, h, "17", bufio.NewScanner(strings.NewReader(answer)))
		if asked != want.asked || errors.Is(err, errLeft) != want.left || !strings.Contains(stderr.String(), "job 17: c cancels it") {
			t.Errorf("%q: asked for %q, %v, %s", answer, asked, err, &stderr)
		}
		server.Close()
	}
}
