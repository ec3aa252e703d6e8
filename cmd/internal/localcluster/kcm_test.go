package localcluster

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestWithout(t *testing.T) {
	if got, want := Without("a", "b"), AllControllers+",-a,-b"; got != want {
		t.Errorf("Without = %q, want %q", got, want)
	}
	// The first mention of a controller counts.
	if got, want := Without("ttl-controller", "token-cleaner-controller"), "*,bootstrap-signer-controller,selinux-warning-controller,-ttl-controller,-token-cleaner-controller"; got != want {
		t.Errorf("Without = %q, want %q", got, want)
	}
}

// AllControllers names all that kube-controller-manager has and "*" does not include.
func TestAllControllers(t *testing.T) {
	table, err := os.ReadFile(filepath.Join("..", "command", "testdata", "upstream-controllers.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"*"}
	for line := range strings.Lines(string(table)) {
		if columns := strings.Split(line, "\t"); columns[2] == "true" {
			want = append(want, columns[0])
		}
	}
	got := strings.Split(AllControllers, ",")
	slices.Sort(got)
	slices.Sort(want)
	if len(want) < 4 || !slices.Equal(got, want) {
		t.Errorf("all are %q, want %q", got, want)
	}
}

func TestConcurrencyFlags(t *testing.T) {
	help := "  --concurrent-gc-syncs int32   x\n --mirroring-concurrent-service-endpoint-syncs int32\n --kube-api-qps float\n"
	got := concurrency.FindAllString(help, -1)
	if len(got) != 2 || got[0] != "--concurrent-gc-syncs" || got[1] != "--mirroring-concurrent-service-endpoint-syncs" {
		t.Errorf("flags are %v", got)
	}
}
