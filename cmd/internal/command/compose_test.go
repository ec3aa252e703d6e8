package command

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	yamls "sigs.k8s.io/yaml"

	"github.com/millrace/millrace/cmd/internal/credentials"
	"github.com/millrace/millrace/cmd/internal/settings"
)

// composed has the fields of a compose file that these tests use.
type composed struct {
	Services map[string]struct {
		Image       string            `json:"image"`
		Command     any               `json:"command"`
		Environment map[string]string `json:"environment"`
		Ports       []string          `json:"ports"`
		ReadOnly    bool              `json:"read_only"`
		CapDrop     []string          `json:"cap_drop"`
		User        string            `json:"user"`
	} `json:"services"`
}

var checkout = filepath.Join("..", "..", "..")

func composeFile(t *testing.T, path ...string) (text string, file composed) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(checkout, filepath.Join(path...)))
	if err != nil {
		t.Fatal(err)
	}
	if err := yamls.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	return string(data), file
}

// envFile are the variables of a file for --env-file.
func envFile(t *testing.T, name string) map[string]string {
	t.Helper()
	file, err := os.Open(filepath.Join(deployments, "compose", name))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	found := map[string]string{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), "="); ok && !strings.HasPrefix(key, "#") {
			found[key] = value
		}
	}
	return found
}

// words are a command as compose would run it, with the variables of an env file or
// their defaults.
func words(command any, env map[string]string) (all []string) {
	fill := func(text string) string {
		return regexp.MustCompile(`\$\{(\w+)(?::-([^}]*)|:\?[^}]*)?\}`).ReplaceAllStringFunc(text, func(found string) string {
			parts := regexp.MustCompile(`\$\{(\w+)(?::-([^}]*))?`).FindStringSubmatch(found)
			if value, ok := env[parts[1]]; ok {
				return value
			}
			return parts[2]
		})
	}
	switch command := command.(type) {
	case string:
		return strings.Fields(fill(command))
	case []any:
		for _, word := range command {
			all = append(all, fill(fmt.Sprint(word)))
		}
	}
	return all
}

// TestComposeHoldsFlags: the compose files use only existing commands and flags of Millrace.
func TestComposeHoldsFlags(t *testing.T) {
	local := envFile(t, "local.env")
	for _, path := range []string{"docker-compose.yaml", "deployments/compose/beside.yaml"} {
		_, file := composeFile(t, path)
		checked := 0
		for name, service := range file.Services {
			args := words(service.Command, local)
			if image := words(service.Image, local); len(image) != 1 || image[0] != local["MILLRACE_IMAGE"] && path == "docker-compose.yaml" {
				continue
			}
			command, rest, err := newRoot().Find(args)
			if err != nil || !command.Runnable() {
				t.Errorf("%s: %s runs %v, which is no command (%v)", path, name, args, err)
				continue
			}
			if err := command.ParseFlags(rest); err != nil {
				t.Errorf("%s: %s: %v", path, name, err)
			}
			for variable, value := range service.Environment {
				if !strings.HasPrefix(variable, "MILLRACE_") || command.Name() == "bus" { // which is given the services' settings
					continue
				}
				flag := strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(variable, "MILLRACE_")), "_", "-")
				if settings.Variable(flag) != variable || command.Flags().Lookup(flag) == nil {
					t.Errorf("%s: %s: %s=%s is no setting of millrace %s", path, name, variable, value, command.Name())
				}
			}
			checked++
		}
		if checked < 4 {
			t.Errorf("%s: only %d services run our program", path, checked)
		}
	}
}

// TestComposeIsHardened: no container runs as root or can become root, and no port is published
// beyond this machine.
func TestComposeIsHardened(t *testing.T) {
	for _, path := range []string{"docker-compose.yaml", "deployments/compose/beside.yaml"} {
		_, file := composeFile(t, path)
		for name, service := range file.Services {
			if !service.ReadOnly || !slices.Equal(service.CapDrop, []string{"ALL"}) || service.User == "" || strings.HasPrefix(service.User, "0") {
				t.Errorf("%s: %s: read_only %v, cap_drop %v, user %q", path, name, service.ReadOnly, service.CapDrop, service.User)
			}
			for _, port := range service.Ports {
				if !strings.HasPrefix(port, "127.0.0.1:") {
					t.Errorf("%s: %s publishes %s to everybody", path, name, port)
				}
			}
		}
	}
}

// TestEnvFiles: both set exactly the variables of the compose file, and the published images
// have the versions that the project builds and tests.
func TestEnvFiles(t *testing.T) {
	text, _ := composeFile(t, "docker-compose.yaml")
	asked := map[string]bool{}
	for _, found := range regexp.MustCompile(`\$\{(\w+):\?`).FindAllStringSubmatch(text, -1) {
		asked[found[1]] = true
	}
	for _, name := range []string{"local.env", "published.env"} {
		if got, want := slices.Sorted(maps.Keys(envFile(t, name))), slices.Sorted(maps.Keys(asked)); !slices.Equal(got, want) {
			t.Errorf("%s sets %v; the compose file asks for %v", name, got, want)
		}
	}
	published := envFile(t, "published.env")
	for variable, from := range map[string]struct{ file, module, image string }{
		"ETCD_IMAGE":      {"test/cluster/go.mod", "go.etcd.io/etcd/server/v3", "quay.io/coreos/etcd:v%s"},
		"APISERVER_IMAGE": {"test/cluster/go.mod", "k8s.io/kubernetes", "registry.k8s.io/kube-apiserver:v%s"},
		"SCHEDULER_IMAGE": {"test/cluster/go.mod", "k8s.io/kubernetes", "registry.k8s.io/kube-scheduler:v%s"},
		"KCM_IMAGE":       {"test/cluster/go.mod", "k8s.io/kubernetes", "registry.k8s.io/kube-controller-manager:v%s"},
		"KWOK_IMAGE":      {"test/cluster/kwok/go.mod", "sigs.k8s.io/kwok", "registry.k8s.io/kwok/kwok:v%s"},
		"NATS_IMAGE":      {"pkg/events/go.mod", "github.com/nats-io/nats-server/v2", "docker.io/library/nats:%s-alpine"},
	} {
		if want := fmt.Sprintf(from.image, pinned(t, from.file, from.module)); published[variable] != want {
			t.Errorf("published.env: %s is %s, and %s pins %s", variable, published[variable], from.file, want)
		}
	}
	// Jaeger's module still has the previous version; both come from one commit.
	if version := pinned(t, "tools/jaeger/go.mod", "github.com/jaegertracing/jaeger"); version != "1.76.0" || published["JAEGER_IMAGE"] != "docker.io/jaegertracing/jaeger:2.13.0" {
		t.Errorf("jaeger's module is %s and its image %s; 1.76.0 is 2.13.0", version, published["JAEGER_IMAGE"])
	}
	// Prometheus 3.13.5 is the module 0.313.5.
	minor, patch, _ := strings.Cut(strings.TrimPrefix(pinned(t, "tools/prometheus/go.mod", "github.com/prometheus/prometheus"), "0.3"), ".")
	if want := "docker.io/prom/prometheus:v3." + minor + "." + patch; published["PROMETHEUS_IMAGE"] != want {
		t.Errorf("published.env: PROMETHEUS_IMAGE is %s, and the module is that of %s", published["PROMETHEUS_IMAGE"], want)
	}
}

// pinned is the version of a module in a go.mod, without its "v".
func pinned(t *testing.T, file, module string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(checkout, file))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^(?:require)?\s+` + regexp.QuoteMeta(module) + ` v(\S+)`).FindSubmatch(text)
	if found == nil {
		t.Fatalf("%s does not require %s", file, module)
	}
	return string(found[1])
}

// TestComposeLetsNoClientInWithoutAName: each of Millrace's services in docker-compose.yaml that
// connects to the bus does so with a login, which the service keys makes for it.
func TestComposeLetsNoClientInWithoutAName(t *testing.T) {
	text, file := composeFile(t, "docker-compose.yaml")
	if strings.Contains(text, "MILLRACE_NATS_URL:") || strings.Contains(text, "--nats-url") {
		t.Error("a service is given an address that has no login")
	}
	local := envFile(t, "local.env")
	keys := words(file.Services["keys"].Command, local)
	for service, user := range map[string]string{
		"watcher": "watcher", "reconcilers": "reconcilers", "writer": "writer", "notary": "notary", "verify": "reader", "ui": "reader", "provisioner": "provisioner",
	} {
		if args := words(file.Services[service].Command, local); !slices.Contains(args, "--config=/keys/"+credentials.LoginFile) {
			t.Errorf("%s runs %v, without its login", service, args)
		}
		if !slices.Contains(keys, "--bus-login-for="+user+"=/volumes/"+user) || !strings.Contains(text, `"`+user+`-keys:/keys:ro"`) {
			t.Errorf("%s has no login as %s", service, user)
		}
	}
	for _, name := range []string{"local.env", "published.env"} {
		if command := envFile(t, name)["NATS_COMMAND"]; !strings.Contains(command, "=/etc/millrace/accounts.conf ") {
			t.Errorf("%s: NATS is started without users: %s", name, command)
		}
	}
}
