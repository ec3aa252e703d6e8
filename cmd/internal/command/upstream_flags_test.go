package command

import (
	"strings"
	"testing"
)

// TestFlagsThatAreMoot takes what kube-controller-manager does by default, and says of all
// else why it is not to be had.
func TestFlagsThatAreMoot(t *testing.T) {
	for flag, want := range map[string]string{
		"--namespace-sync-period=5m":            "",
		"--namespace-sync-period=300s":          "",
		"--namespace-sync-period=1m":            "it is 5m0s and nothing else",
		"--endpoint-updates-batch-period=0":     "",
		"--endpoint-updates-batch-period=500ms": "joined without waiting; take it out",
		"--endpoint-updates-batch-period=often": "invalid duration",

		"--pvclaimbinder-sync-period=15s":                "",
		"--pvclaimbinder-sync-period=1m":                 "it is 15s and nothing else",
		"--enable-hostpath-provisioner=false":            "",
		"--enable-hostpath-provisioner":                  "it is false and nothing else",
		"--enable-hostpath-provisioner=perhaps":          "invalid syntax",
		"--enable-dynamic-provisioning=false":            "",
		"--pv-recycler-maximum-retry=3":                  "",
		"--pv-recycler-maximum-retry=4":                  "volumes are not recycled here",
		"--pv-recycler-maximum-retry=many":               "invalid syntax",
		"--pv-recycler-pod-template-filepath-nfs=":       "",
		"--pv-recycler-pod-template-filepath-nfs=/etc/p": "it is empty and nothing else",
		"--pv-recycler-pod-template-filepath-hostpath=":  "",
		"--pv-recycler-minimum-timeout-nfs=300":          "",
		"--pv-recycler-increment-timeout-nfs=30":         "",
		"--pv-recycler-minimum-timeout-hostpath=60":      "",
		"--pv-recycler-timeout-increment-hostpath=30":    "",
	} {
		err := newRun().ParseFlags([]string{flag})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", flag, err, want)
		}
	}
}

// TestFlagsThatAreElsewhere says what to do instead, once, and only of flags that
// kube-controller-manager has.
func TestFlagsThatAreElsewhere(t *testing.T) {
	for flag, want := range map[string]string{
		"--leader-elect=true":             "nobody leads here",
		"--leader_elect=true":             "nobody leads here",
		"--kube-api-qps=20":               "--max-requests-in-flight",
		"--controller-shutdown-timeout=1": "set --shutdown-timeout",
		"--cluster-name=kubernetes":       "stays with kube-controller-manager",
		"--secure-port=10257":             "--health-address",
		"--replicas=3":                    "",
	} {
		cmd := newRun()
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs([]string{flag})
		err := cmd.ExecuteContext(t.Context())
		if err == nil || !strings.Contains(err.Error(), strings.TrimLeft(flag[:5], "-")) || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "kube-controller-manager's") != (want != "") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", flag, err, want)
		}
	}
}
