// SPDX-License-Identifier: Apache-2.0
#include "config/text.h"
#include "shim/pooled/selection.h"

#include "tests/catch.h"

using cistern::config::names_backward;
using cistern::shim::names_operator;

TEST_CASE("an operator is named by its words, however they are written") {
  CHECK(names_operator("relu", "relu"));
  CHECK(names_operator("at::native::relu_kernel(int)", "relu"));
  CHECK(names_operator("ReluOp", "relu"));
  CHECK(names_operator("batch_norm", "batch_norm"));
  CHECK(names_operator("BatchNormForward", "batch_norm"));
  CHECK(names_operator("op/batch-norm", "batch_norm"));
  CHECK(names_operator("batchNorm", "batch_norm"));
  CHECK(names_operator("Relu6Kernel", "relu6"));
}

TEST_CASE("a part of a word names no operator") {
  CHECK_FALSE(names_operator("relu6", "relu"));
  CHECK_FALSE(names_operator("prelu", "relu"));
  CHECK_FALSE(names_operator("expand", "exp"));
  CHECK_FALSE(names_operator("summary", "sum"));
  CHECK_FALSE(names_operator("batch", "batch_norm"));
  CHECK_FALSE(names_operator("batch_of_norm", "batch_norm"));
  CHECK_FALSE(names_operator("batchnorm", "batch_norm"));
  CHECK_FALSE(names_operator("", "sum"));
}

TEST_CASE("the backward part is known by the names that Paddle and PyTorch have for it") {
  const char* name = GENERATE(
      "fc_0.w_0@GRAD", "conv2d_grad", "phi::ConvGradKernel<float, phi::GPUContext>",
      "paddle::operators::ConvGradOp::InferShape", "Conv2dGradNode::operator()",
      "egr::GradNodeAccumulation::operator()", "paddle::imperative::BasicEngine::Execute()",
      "paddle::imperative::PartialGradEngine::Execute()", "matmul_grad_ad_func",
      "torch::autograd::AccumulateGrad::apply(std::vector<at::Tensor>&&)",
      "torch::autograd::generated::AddmmBackward0::apply", "torch::autograd::Engine::thread_main",
      "at::native::slow_conv2d_grad_input_out", "append_backward", "loss.backward");
  CAPTURE(name);
  CHECK(names_backward(name, true));
}

TEST_CASE("what is no backward part is not taken for it") {
  for (const char* name : {"", "step", "Gradient", "at::native::add", "GradScaler.scale", "adam",
                           "paddle::operators::ConvOp", "phi::ConvKernel", "upgrade"}) {
    CAPTURE(name);
    CHECK_FALSE(names_backward(name, true));
  }
  // A folder's name says nothing of what its programs do.
  CHECK_FALSE(names_backward("/home/ada/my_grad_work/app", false));
  CHECK(names_backward("/usr/lib/libbackward.so", false));
}
