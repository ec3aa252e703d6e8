package command

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/cmd/internal/controllerflags"
)

// remarks are about flags of kube-controller-manager that Millrace has with more, less or a
// different effect.
var remarks = map[string]string{
	"controllers": "names of the controllers of clouds are taken, and nothing comes of them, as there",
	"kubeconfig":  "without it $KUBECONFIG, and then the pod's service account",
	"use-service-account-credentials": "by impersonation, and not with tokens of the accounts, so that the user of --kubeconfig needs rights that " +
		"`millrace rbac` prints, besides kube-controller-manager's own",
	"leader-elect": "on a bus of its own (`millrace run` without `--nats-url`) as there: the process that holds the Lease acts, and the others wait. " +
		"On a bus that several share the work is divided among them: no Lease is needed or taken, and both values say the same",
	"leader-elect-resource-name": "kube-controller-manager's own Lease: while kube-controller-manager holds it, Millrace waits. Where the controllers are " +
		"divided between the two, give another name",
	"enable-leader-migration":      "for services, and for `run`: a writer holds the Lease; a controller that acts here and is not of the component `*` or `millrace` in the file is an error ([takeover.md](takeover.md))",
	"leader-migration-config":      "with `--enable-leader-migration`, which needs it: kube-controller-manager's default names controllers of clouds alone",
	"bind-address":                 "with it or `--secure-port` the health address is that of both, and speaks HTTPS alone; without either `--health-address` counts",
	"secure-port":                  "as `--bind-address`; 0 serves nothing",
	"profiling":                    "off unless asked for",
	"contention-profiling":         "with `--profiling`",
	"controller-shutdown-timeout":  "the same as `--shutdown-timeout`",
	"kube-api-qps":                 "requests of each controller's writes in a second; without it there is no limit but the API server's own",
	"kube-api-burst":               "with `--kube-api-qps`",
	"requestheader-client-ca-file": "the authorities of a front proxy are not looked up in the cluster: no API server forwards requests here",
	"version":                      "Millrace's own version; true or false alone",
	"disabled-metrics":             "left out of /metrics, those of Kubernetes' libraries, too",
	"feature-gates":                "gates of kube-controller-manager; which have one state here [differences.md](differences.md) says",
	"cert-dir":                     "the files are health.crt and health.key",
	"tls-sni-cert-key":             "beside a certificate of `--tls-cert-file`, of `--cert-dir` or one that is made",
}

const flagsPageHead = `# The command line of kube-controller-manager

<!-- Made by cmd/internal/command, TestThePageOfFlags, from kube-controller-manager's own list of flags. -->

` + "`millrace run`" + ` takes every flag of kube-controller-manager 1.36.3: with its meaning, or, where something is not done here, with the one value
that says so. Another value is an error with the reason; no flag is taken and forgotten. The services take what is theirs, and say of
the rest whose it is.

So a static pod that kubeadm made runs Millrace with the flags that it has. Its user, system:kube-controller-manager, may not impersonate
the controllers, as the writer does. One manifest gives it that right, and has to be applied before; the record needs a directory:

` + "```" + `
kubectl apply -f deployments/static-pod/kube-controller-manager.yaml
millrace run --data-dir=/var/lib/millrace …
` + "```" + `

kubeadm's probes ask /healthz, which also fails while the bus or the API server is away; ask /livez, as
[deployments/static-pod](../deployments/static-pod) does, where the kubelet should not restart it then.

| flag | there by default | here |
|---|---|---|
`

// flagsPage is the page about every flag of kube-controller-manager.
func flagsPage(t *testing.T) string {
	var out bytes.Buffer
	out.WriteString(flagsPageHead)
	ours := runFlags()
	still := map[string]controllerflags.Moot{}
	for _, m := range controllerflags.Moots() {
		still[m.Flag] = m
	}
	for _, f := range upstreamFlags(t) {
		here := "as there"
		if is := ours.Lookup(f.name); f.unlike(is) {
			here += ", by default " + shownDefault(is.DefValue)
		}
		if m, is := still[f.name]; is {
			here = "only " + m.Values() + ": " + m.Since
			if m.Any {
				here = "any value, without effect: " + m.Since
			}
		}
		if remark := remarks[f.name]; remark != "" {
			here = strings.TrimPrefix(here+"; ", "as there; ") + remark
		}
		dash := "--"
		fmt.Fprintf(&out, "| `%s%s` | %s | %s |\n", dash, f.name, shownDefault(f.standard), here)
	}
	return out.String()
}

// shownDefault is a default in the format of the table.
func shownDefault(value string) string {
	if value == "" || value == "[]" {
		return ""
	}
	return "`" + value + "`"
}

// TestThePageOfFlags: the page has the current flags. UPDATE_FLAGS=1 writes it.
func TestThePageOfFlags(t *testing.T) {
	file := filepath.Join(checkout, "docs", "flags.md")
	want := flagsPage(t)
	if os.Getenv("UPDATE_FLAGS") != "" {
		ok(t, os.WriteFile(file, []byte(want), 0o644))
	}
	text, err := os.ReadFile(file)
	if err != nil || string(text) != want {
		t.Errorf("%s (%v) is not what the flags are; write it anew: UPDATE_FLAGS=1 go test ./cmd/internal/command -run TestThePageOfFlags", file, err)
	}
	of := map[string]bool{}
	for _, f := range upstreamFlags(t) {
		of[f.name] = true
	}
	for name := range remarks {
		if !of[name] {
			t.Errorf("there is a remark on --%s, which kube-controller-manager does not have", name)
		}
	}
}
