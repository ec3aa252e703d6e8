package trace

import (
	"os"
	"testing"

	"github.com/millrace/millrace/cmd/clustertest"
)

func TestMain(m *testing.M) { os.Exit(clustertest.Run(m)) }
