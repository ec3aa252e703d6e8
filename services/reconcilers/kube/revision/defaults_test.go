package revision_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/millrace/millrace/services/reconcilers/kube/revision"
)

func templateOf(t *testing.T, text string) *corev1.PodTemplateSpec {
	t.Helper()
	made := new(corev1.PodTemplateSpec)
	if err := yaml.Unmarshal([]byte(text), made); err != nil {
		t.Fatal(err)
	}
	return made
}

// now is a template as the API gives it back.
const now = `{metadata: {labels: {app: web}}, spec: {dnsPolicy: ClusterFirst, restartPolicy: Always, securityContext: {}, schedulerName: default-scheduler,
  terminationGracePeriodSeconds: 30, containers: [{name: c, image: "nginx:1", imagePullPolicy: IfNotPresent, terminationMessagePath: /dev/termination-log,
  terminationMessagePolicy: File, resources: {}, readinessProbe: {grpc: {port: 1, service: ""}, timeoutSeconds: 1, periodSeconds: 10, successThreshold: 1, failureThreshold: 3}}]}}`

func TestWhatIsHeldByDefault(t *testing.T) {
	want := templateOf(t, now)
	for what, c := range map[string]struct {
		held string
		same bool
	}{
		"before any default":            {`{metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: "nginx:1", readinessProbe: {grpc: {port: 1}}}]}}`, true},
		"as it is":                      {now, true},
		"another image":                 {`{metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: "nginx:2", readinessProbe: {grpc: {port: 1}}}]}}`, false},
		"without what a user added":     {`{metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: "nginx:1"}]}}`, false},
		"another value than by default": {`{metadata: {labels: {app: web}}, spec: {dnsPolicy: Default, containers: [{name: c, image: "nginx:1", readinessProbe: {grpc: {port: 1}}}]}}`, false},
	} {
		r := holding(string(revision.Patch(templateOf(t, c.held))))
		if got := revision.HoldsByDefault(r, want); got != c.same {
			t.Errorf("%s: %v, want %v", what, got, c.same)
		}
	}
	if revision.HoldsByDefault(holding(`{`), want) {
		t.Error("a revision that is no JSON counts as the template")
	}
}

func TestPullPolicyByDefault(t *testing.T) {
	for image, want := range map[string]corev1.PullPolicy{
		"nginx":                           corev1.PullAlways,
		"nginx:latest":                    corev1.PullAlways,
		"nginx:1":                         corev1.PullIfNotPresent,
		"registry.example:5000/nginx":     corev1.PullAlways,
		"registry.example:5000/nginx:1":   corev1.PullIfNotPresent,
		"registry.example/nginx@sha256:a": corev1.PullIfNotPresent,
	} {
		made := revision.Defaulted(&corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: image}}}})
		if got := made.Spec.Containers[0].ImagePullPolicy; got != want {
			t.Errorf("%s is pulled %s, want %s", image, got, want)
		}
	}
}

// A volume that says nothing of where it comes from is an empty directory, and a token that
// says nothing of its end lasts an hour.
func TestVolumesByDefault(t *testing.T) {
	made := revision.Defaulted(templateOf(t, `{spec: {volumes: [{name: a}, {name: b, hostPath: {path: /}}, {name: c, projected: {sources: [{serviceAccountToken: {path: t}}]}}]}}`))
	all := made.Spec.Volumes
	if all[0].EmptyDir == nil || all[1].EmptyDir != nil || all[1].HostPath == nil || all[2].EmptyDir != nil {
		t.Errorf("the volumes are %+v", all)
	}
	if got := all[2].Projected.Sources[0].ServiceAccountToken.ExpirationSeconds; got == nil || *got != 3600 {
		t.Errorf("a token lasts %v seconds", got)
	}
}
