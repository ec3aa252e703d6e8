package selinuxwarning

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// want is how a pod wants to use the volume.
type want struct {
	pod *corev1.Pod
	// label is the label with which the volume is to be mounted; empty if it is to be mounted
	// without one and relabelled file by file.
	label  string
	policy string
}

// wantOf is the want of a use; ok is false if containers of the pod want several labels. If the
// pod has the volume twice, the first with one label counts.
//
// Upstream: pkg/volume/util, GetMountSELinuxLabel; pkg/controller/volume/selinuxwarning,
// syncVolume. There the last one counts, in the order of a set.
func (v View) wantOf(u Use) (w want, ok bool) {
	if u.Pod == nil {
		return w, false
	}
	for _, volume := range u.Volumes {
		all := labelsIn(u.Pod, volume)
		if len(all) > 1 {
			continue
		}
		w = want{u.Pod, "", policyOf(u.Pod)}
		if len(all) == 1 && v.Mounts && w.policy != recursive {
			w.label = all[0]
		}
		if w.label == "" {
			w.policy = recursive
		}
		return w, true
	}
	return w, false
}

const recursive = string(corev1.SELinuxChangePolicyRecursive)

func policyOf(p *corev1.Pod) string {
	if c := p.Spec.SecurityContext; c != nil && c.SELinuxChangePolicy != nil {
		return string(*c.SELinuxChangePolicy)
	}
	return string(corev1.SELinuxChangePolicyMountOption)
}

// containers calls each for all containers of a pod.
func containers(p *corev1.Pod, each func(mounts []corev1.VolumeMount, own *corev1.SecurityContext)) {
	for i := range p.Spec.InitContainers {
		each(p.Spec.InitContainers[i].VolumeMounts, p.Spec.InitContainers[i].SecurityContext)
	}
	for i := range p.Spec.Containers {
		each(p.Spec.Containers[i].VolumeMounts, p.Spec.Containers[i].SecurityContext)
	}
	for i := range p.Spec.EphemeralContainers {
		each(p.Spec.EphemeralContainers[i].VolumeMounts, p.Spec.EphemeralContainers[i].SecurityContext)
	}
}

// mountedBy reports whether a container mounts a volume of its pod. A block device has no label.
func mountedBy(p *corev1.Pod, volume string) (mounted bool) {
	containers(p, func(mounts []corev1.VolumeMount, _ *corev1.SecurityContext) {
		mounted = mounted || names(mounts, volume)
	})
	return mounted
}

func names(mounts []corev1.VolumeMount, volume string) bool {
	return slices.ContainsFunc(mounts, func(m corev1.VolumeMount) bool { return m.Name == volume })
}

// labelsIn are the labels with which containers of a pod mount a volume, each once. A container
// without SELinux options, of its own or of its pod, has no label, not even an empty one.
func labelsIn(p *corev1.Pod, volume string) (all []string) {
	containers(p, func(mounts []corev1.VolumeMount, own *corev1.SecurityContext) {
		options := optionsOf(p, own)
		if options == nil || !names(mounts, volume) {
			return
		}
		if l := labelOf(options); !slices.Contains(all, l) {
			all = append(all, l)
		}
	})
	return all
}

func optionsOf(p *corev1.Pod, own *corev1.SecurityContext) *corev1.SELinuxOptions {
	switch {
	case own != nil && own.SELinuxOptions != nil:
		return own.SELinuxOptions
	case p.Spec.SecurityContext != nil:
		return p.Spec.SecurityContext.SELinuxOptions
	default:
		return nil
	}
}

// labelOf encodes options as a label. Only the node knows the parts that they leave out.
//
// Upstream: pkg/controller/volume/selinuxwarning/translator.
func labelOf(o *corev1.SELinuxOptions) string {
	if *o == (corev1.SELinuxOptions{}) {
		return ""
	}
	return strings.Join([]string{o.User, o.Role, o.Type, o.Level}, ":")
}

// labelsConflict reports whether two labels cannot be the same on any node: a missing user, role or
// type may equal the other's, a missing level may not.
//
// Upstream: pkg/controller/volume/selinuxwarning/translator, Conflicts.
func labelsConflict(a, b string) bool {
	if a == b {
		return false
	}
	x, y := parts(a), parts(b)
	for i := range 3 {
		if x[i] != y[i] && x[i] != "" && y[i] != "" {
			return true
		}
	}
	return x[3] != y[3]
}

// parts are the user, role, type and level of a label; the level may contain colons.
func parts(label string) (all [4]string) {
	copy(all[:], strings.SplitN(label, ":", 4))
	return all
}

// digest identifies a pod's want.
func (w want) digest() string {
	sum := sha256.Sum256([]byte(w.label + "\x00" + w.policy))
	return hex.EncodeToString(sum[:8])
}
