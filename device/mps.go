package device

// MPSVariable is the environment's word for the folder in which a process reaches NVIDIA's
// Multi-Process Service.
const MPSVariable = "CUDA_MPS_PIPE_DIRECTORY"
