package observability

import (
	"context"
	"errors"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// errands gives work to the controllers that the Deployment does not reach: a Job that exceeds its deadline,
// a Job that fails by its rules, a Job of another manager, a Service, and a Service whose addresses another
// manager maintains.
func (s *site) errands(ctx context.Context, namespace string) (done func() error, err error) {
	config, err := s.cluster.Config()
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	one, seconds, indexed := int32(1), int64(1), batchv1.IndexedCompletion
	_, err = client.BatchV1().Jobs(namespace).Create(ctx, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "late"}, Spec: batchv1.JobSpec{
		Completions: &one, ActiveDeadlineSeconds: &seconds, CompletionMode: &indexed,
		Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "late:1"}}}},
	}}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	for name, spec := range map[string]batchv1.JobSpec{
		"ruled": {TTLSecondsAfterFinished: new(int32(0)), PodFailurePolicy: &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
			Action:      batchv1.PodFailurePolicyActionFailJob,
			OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{1}},
		}}}},
		"elsewhere": {ManagedBy: new("example.com/queue")},
	} {
		spec.Template.Spec = corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{
			{Name: "c", Image: "rules:1", Command: []string{"/bin/sh", "-c", "exit 1"}},
		}}
		if _, err := client.BatchV1().Jobs(namespace).Create(ctx, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{}); err != nil {
			return nil, err
		}
	}
	for name, selector := range map[string]map[string]string{"inside": {"app": deployment}, "outside": nil} {
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Selector: selector, Ports: []corev1.ServicePort{{Port: 80}}}}
		if _, err := client.CoreV1().Services(namespace).Create(ctx, service, metav1.CreateOptions{}); err != nil {
			return nil, err
		}
	}
	_, err = client.CoreV1().Endpoints(namespace).Create(ctx, &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Name: "outside"}, Subsets: []corev1.EndpointSubset{{
		Addresses: []corev1.EndpointAddress{{IP: "192.0.2.1"}}, Ports: []corev1.EndpointPort{{Port: 80}},
	}}}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	return func() error { return run(ctx, client, namespace) }, nil
}

// run waits until the errands are done.
func run(ctx context.Context, client kubernetes.Interface, namespace string) error {
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		lacks, err := lacking(ctx, client, namespace)
		if err == nil && lacks == "" {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the errands, %s: %w", lacks, errors.Join(ctx.Err(), err))
		case <-again.C:
		}
	}
}

// lacking names an errand that is not done yet.
func lacking(ctx context.Context, client kubernetes.Interface, namespace string) (string, error) {
	slices, err := client.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	job, err := client.BatchV1().Jobs(namespace).Get(ctx, "late", metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	if !failed(job) {
		return fmt.Sprintf("a Job says %+v", job.Status), nil
	}
	if _, err := client.BatchV1().Jobs(namespace).Get(ctx, "ruled", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return "the Job that fails by its rules has not gone with its pod", err
	}
	if !published(slices.Items) {
		return fmt.Sprintf("there are %d slices", len(slices.Items)), nil
	}
	return "", nil
}

func failed(job *batchv1.Job) bool {
	for _, c := range job.Status.Conditions {
		if c.Type == batchv1.JobFailed && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

func published(all []discoveryv1.EndpointSlice) bool {
	found := map[string]bool{}
	for _, slice := range all {
		found[slice.Labels[discoveryv1.LabelServiceName]] = true
	}
	return found["inside"] && found["outside"]
}
