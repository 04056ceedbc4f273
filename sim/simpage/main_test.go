package simpage

import (
	"os"
	"testing"

	"muster/internal/browser"
)

func TestMain(m *testing.M) { os.Exit(browser.Main(m)) }
